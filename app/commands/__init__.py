"""The commands beside the service.

`parser` reads the command line; a module of its own answers each command.
`asking` reads a service's /status, and `cluster` judges several. `output` and `exit_status` are for
all.
"""
