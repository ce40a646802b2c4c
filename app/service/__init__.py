"""What runs without a command.

`serve.serve` puts the parts together and stops them. At a `reload`, a `successor` takes over. `log`
writes the lines, and `systemd` is told the state.
"""
