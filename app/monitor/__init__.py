"""When to poll, and which poll an answer rests on. Others use `monitor.Monitor`."""
