"""The HTTP side: answers to health checks, other endpoints, limits on clients, the server."""
