"""The poller and the monitor in a world with its own clock, whose faults come from a seed."""
