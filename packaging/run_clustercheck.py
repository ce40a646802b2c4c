"""The packaged `clustercheck`, the script's drop-in."""

from app.script.clustercheck import run

run()
