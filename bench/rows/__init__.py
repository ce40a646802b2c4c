"""One module for each group of rows: the measurement and its goal."""
