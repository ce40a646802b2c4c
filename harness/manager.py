"""What stands for systemd: a datagram socket to which a service sends notifications."""

import re
import socket
import threading
import weakref

from harness.process import become_parent_of_orphans
from harness.waiting import wait_for


class Manager:
    """What a service sends to its manager, line by line."""

    def __init__(self, address: str = "") -> None:
        become_parent_of_orphans()
        self._lines: list[str] = []
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # Without an address, the kernel chooses an abstract one, unix(7).
        listening.bind(re.sub("^@", "\0", address))
        self.address = address or f"@{listening.getsockname()[1:].decode()}"
        # The kernel keeps only ten that nobody reads.
        reading = threading.Thread(
            target=_read, args=(listening, self._lines), daemon=True
        )
        reading.start()
        # Not by its address, which another network's thread would not find.
        self.close = weakref.finalize(self, listening.shutdown, socket.SHUT_RD)

    def values(self, name: str) -> list[str]:
        """Return all values sent for a name so far, oldest first."""
        return [
            line.partition("=")[2]
            for line in self._lines
            if line.startswith(f"{name}=")
        ]

    def wait_for(self, name: str, value: str) -> None:
        """Wait until a value that begins so has been sent."""
        wait_for(
            f"{name}={value}",
            lambda: any(sent.startswith(value) for sent in self.values(name)),
        )


def _read(listening: socket.socket, lines: list[str]) -> None:
    with listening:
        while message := listening.recv(65536):
            lines += message.decode().splitlines()
