"""The truth run: random faults on a real cluster, and what each answer was worth."""
