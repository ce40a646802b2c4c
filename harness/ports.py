"""Free ports on the loopback address, reserved against other runs of the harness."""

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"

# Below the kernel's range for outgoing ports (from 32768 on Linux), so that no connection takes a
# port meanwhile.
_PORTS = range(20000, 32000)
_LISTENING = "0A"  # TCP_LISTEN in proc(5)


class Ports:
    """Reserves ports that nothing listens on, until `close`."""

    def __init__(self) -> None:
        self._reservations: list[socket.socket] = []

    def free(self) -> int:
        """Reserve a port and return it."""
        return next(
            port for port in random.sample(_PORTS, len(_PORTS)) if self._reserve(port)
        )

    def close(self) -> None:
        """Release the ports."""
        for reservation in self._reservations:
            reservation.close()

    def _reserve(self, port: int) -> bool:
        # An abstract unix socket is a lock for all users of the machine, which the kernel releases
        # with its process.
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0clustercheckd-port-{port}")
            with socket.socket() as attempt:
                attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                attempt.bind((LOOPBACK, port))
        except OSError:
            reservation.close()
            return False
        self._reservations.append(reservation)
        return True


def listens(port: int, pid: int | None = None) -> bool:
    """Return whether a process listens on a TCP port over IPv4.

    This reads the kernel's table and does not connect. pid: of a process in the network meant.
    """
    try:
        table = Path(f"/proc/{pid or 'self'}/net/tcp").read_text()
    except FileNotFoundError:
        # It has ended.
        return False
    rows = [line.split() for line in table.splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == _LISTENING for row in rows)
