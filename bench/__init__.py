"""The measurements behind the figures of docs/benchmarks.md: `make bench` prints them as one table.

Every figure is a ratio or a count, measured side by side in one run, in turns (A, B, A, B, ...), medians taken: a
machine that is busy with other things slows both sides alike.
"""
