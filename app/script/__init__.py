"""For people who come from the clustercheck script.

`clustercheck` takes its place and starts without the web stack, `migrate` turns its settings into
ours, and `inputs` reads them as the script does.
"""
