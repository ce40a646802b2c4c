"""The packaged `clustercheckd`."""

import os
import sys

# The executable is started again as a successor. With what PyInstaller has set for this process, it
# would take itself for a part of this one (PyInstaller's manual, "Independent subprocesses").
os.environ["PYINSTALLER_RESET_ENVIRONMENT"] = "1"
os.environ["LD_LIBRARY_PATH"] = os.environ.pop("LD_LIBRARY_PATH_ORIG", "")

from app.__main__ import main

sys.exit(main())
