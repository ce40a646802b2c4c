"""The poller and the monitor in a world with its own clock, beside a server whose faults come from
a seed.
"""
