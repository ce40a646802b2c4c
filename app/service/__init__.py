"""What runs without a command.

`serve.serve` puts the parts together, stops them and replaces them at a reload. `log` writes the
lines, `systemd` is told the state, and `preload` imports what an upgrade might take away.
"""
