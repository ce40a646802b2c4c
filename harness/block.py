"""What runs for as long as a `with` block, and is gone after it, also where its start failed half way."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Block(ABC):
    """Started by `with`, closed at its end and after a start that failed or was interrupted."""

    def __enter__(self) -> Self:
        """Start; close again what has been started if that fails."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    @abstractmethod
    def _start(self) -> None:
        """Start everything."""

    @abstractmethod
    def close(self) -> None:
        """Stop and remove what there is."""
