"""The measurements behind the figures of docs/guarantees.md: `make bench` prints them as one table.

Almost every figure is a ratio or a count. A ratio compares two sides in one run, which alternates
between them (A, B, A, B, ...) and takes medians: a busy machine then slows both sides alike.
"""
