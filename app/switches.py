"""What is switched by hand: the disabled file, and the end of the service."""

import os

from app.verdict import Switches

DISABLED_FILE = "/var/tmp/clustercheck.disabled"  # noqa: S108 (the script's own place)


class ManualSwitches:
    """The switches as they stand whenever asked."""

    def __init__(self, disabled_file: str) -> None:
        self.shutting_down = False
        self._disabled_file = disabled_file

    def __call__(self) -> Switches:
        """Look at the switches now."""
        # access, not stat: an exception for the usual case would cost more than all else a probe does here.
        if os.access(self._disabled_file, os.F_OK):
            return Switches(self._disabled_file, self.shutting_down)
        return _SHUTTING_DOWN if self.shutting_down else _NONE


_NONE, _SHUTTING_DOWN = Switches(), Switches(shutting_down=True)
