"""When to poll, how long to wait, and which poll an answer rests on."""
