"""The log: one line an event, on standard error."""

import logging
import time


def set_up_log(level: str) -> None:
    """Log from level (debug, info, warning or error) up; times are UTC."""
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    # uvicorn warns of each malformed request: anybody could fill the disk. Set on the logger itself, which it asks for
    # its own level, twice a connection, before it leaves out what it would trace.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    # asyncio tells of its selector at debug level, and of nothing else we would want.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
