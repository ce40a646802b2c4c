"""The truth run: random faults on a real cluster, and whether each answer was right."""
