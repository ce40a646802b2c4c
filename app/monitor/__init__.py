"""When to poll, and which poll an answer rests on.

Others use `monitor.Monitor`, which they give a `Polling`: how to poll, how often, for how long.
`changes` logs and keeps the changes of the verdict.
"""
