"""The commands beside the service: how a command line is read, and how each command answers."""
