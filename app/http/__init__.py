"""All that speaks HTTP.

A `door` reads one request (`head`) and sends one answer (`answers`); `connections` limits the
doors, and says who may connect. `api` and `metrics` report from `sources`, also the
`reload_outcome`. `server` listens and stops. Only the service uses them.
"""
