"""The packaged `clustercheck`, the script's drop-in."""

import sys

from app.script.clustercheck import run

sys.exit(run())
