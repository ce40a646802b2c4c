"""The commands beside the service, and the script's drop-in."""
