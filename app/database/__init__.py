"""All that speaks MySQL: a connection, its sessions, and the polls over them.

Others use `poller.Poller`, or `poller.poll_once` for a single poll. Every failure is a value, which
`faults` makes of an exception. `logins` and `sync` are pure: what logins and reads in sync mean.
"""
