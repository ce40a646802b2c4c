"""One module for each group of rows: what is measured, how, and the goal."""
