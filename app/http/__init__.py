"""All that speaks HTTP.

`health_checks` answers them, and passes others on to `api` and `metrics`, which report
from `sources`. `guard` limits what a client can do. `server` listens and stops. Only the service
uses them.
"""
