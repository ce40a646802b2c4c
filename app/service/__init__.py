"""What runs without a command: the composition root, the log, and what systemd is told."""
