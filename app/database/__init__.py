"""All that speaks MySQL: how to log in, one connection, one observation at a time, every failure a value."""
