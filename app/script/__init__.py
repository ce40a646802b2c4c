"""For people who come from the clustercheck script: the drop-in, the inputs of both, and the move
to the service.
"""
