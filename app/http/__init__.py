"""The HTTP side: the answers to health checks, the other endpoints, the limits on clients, the
server.
"""
