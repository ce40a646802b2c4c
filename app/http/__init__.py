"""All that speaks HTTP.

A `door` reads one request (`head`) and sends one answer (`answers`); `register` limits the doors.
`api` and `metrics` report from `sources`. `server` listens and stops. Only the service uses them.
"""
