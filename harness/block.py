"""A context manager that cleans up even if its start fails half way."""

from abc import ABC, abstractmethod
from typing import Self


class Block(ABC):
    """Starts when a `with` block begins.

    Closes when it ends, or if the start fails or is interrupted.
    """

    def __enter__(self) -> Self:
        """Start everything. If that fails, close what has been started."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Close everything."""
        self.close()

    @abstractmethod
    def _start(self) -> None:
        """Start everything."""

    @abstractmethod
    def close(self) -> None:
        """Stop and remove everything that has been started."""
