"""For people who come from the clustercheck script: the drop-in, its inputs, and the move."""
