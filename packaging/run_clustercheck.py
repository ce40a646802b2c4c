"""The packaged `clustercheck`, the script's drop-in."""

from app.commands.clustercheck import run

run()
