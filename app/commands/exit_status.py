"""The exit statuses of every command."""

DONE = AVAILABLE = 0
FAILED = NOT_AVAILABLE = 1
MISUSED = 2
"""A setting or an argument cannot be used."""
NOT_ONE_CLUSTER = 3
"""Whatever the single nodes are: see `app.commands.cluster`."""
INTERRUPTED = 130
"""Ctrl-C before the service has started, as shells report it."""
