"""Commands that a build runs, and how one fails."""

import os
import subprocess


class BuildError(Exception):
    """What cannot be built here; the message says why."""


def output_of(*command: str, **environ: str) -> str:
    """Run a command with these variables added; return what it prints. Raises `BuildError`."""
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}"
        raise BuildError(message)
    return done.stdout
