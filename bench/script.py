"""The script that clustercheckd replaces, in its smallest form.

That is bash, the mariadb client, one SHOW STATUS.
"""

from pathlib import Path

from harness.galera import ACCOUNT, PASSWORD, Node

_PROGRAM = Path(__file__).with_name("shell_check.sh")


def script_command(node: Node, directory: Path) -> list[str]:
    """Return the command that checks a node, after writing its option file to directory."""
    option_file = directory / f"shell_check-{node.name}.cnf"
    option_file.touch(mode=0o600)
    option_file.write_text(
        f'[client]\nsocket="{node.socket}"\nuser="{ACCOUNT}"\npassword="{PASSWORD}"\n'
    )
    return [str(_PROGRAM), str(option_file)]
