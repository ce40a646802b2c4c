"""Makes the env file and the man pages of the packages from the program's own texts.

    python packaging/texts.py env | clustercheckd.8 | clustercheckd-clustercheck.8

Prints one of them. If SOURCE_DATE_EPOCH is set, it is the date of the man pages.
"""

import contextlib
import io
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator

from app import __version__
from app.__main__ import main
from app.commands.clustercheck import USAGE
from app.commands.parser import COMMANDS
from app.settings import Settings, default_of

_WIDTH = 120
_HEAD = """\
clustercheckd's settings: one NAME=value a line. The service and the commands (clustercheckd check, status, drain)
read them when they start. After a change, type: systemctl restart clustercheckd. Each line below is a setting with its
default. 1 and 0 mean yes and no. /usr/share/doc/clustercheckd/docs/reference/settings.md describes each setting.

A variable of the environment takes precedence. ${NAME} in a value is replaced by that variable. If a password contains
a $, write it to its own file, and set MYSQL_PASSWORD_FILE."""
_LISTENING = ("clustercheck_host", "clustercheck_port")
_NO_EFFECT = "No effect under systemd, where clustercheckd.socket listens: systemctl edit clustercheckd.socket"

_FILES = (
    ("/etc/clustercheckd/clustercheckd.env", "The settings, read by the service and by every command."),
    ("/var/tmp/clustercheck.disabled", "While it exists, the node is out of the pool."),  # noqa: S108 (the script's place)
    ("/usr/lib/clustercheckd/clustercheck", "The drop-in for Percona's clustercheck script."),
    ("/usr/share/doc/clustercheckd/haproxy.cfg.example", "A complete HAProxy configuration."),
    ("/usr/share/doc/clustercheckd/docs/install.md", "How to install, configure and upgrade."),
)
_STATUS = (
    ("0", "Stopped by a signal; check: the node may take traffic; status: at least one node may."),
    (
        "1",
        "check: the node may not take traffic; status: no node may; drain, undrain: the file was not made or removed.",
    ),
    ("2", "A setting or an argument is wrong; one line on standard error says what to type."),
)


def env_file() -> str:
    """Return the env file, in which every setting is commented out."""
    lines = [f"# {line}".rstrip() for line in _HEAD.splitlines()]
    for name, field in Settings.model_fields.items():
        lines += ["", *_comment(str(field.description))]
        if name in _LISTENING:
            lines += _comment(_NO_EFFECT)
        lines.append(f"#{name.upper()}={default_of(name)}")
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def clustercheckd_page() -> str:
    """Return clustercheckd(8), made from `clustercheckd --help` and the --help of each command."""
    about, rest = _help()
    return "\n".join(
        [
            _title("clustercheckd"),
            ".SH NAME",
            f"clustercheckd \\- {_escaped('health check of a Galera node for load balancers')}",
            ".SH SYNOPSIS",
            ".B clustercheckd",
            "[\\fIcommand\\fR] [\\fIflag\\fR ...]",
            ".SH DESCRIPTION",
            _escaped(about),
            *_sections(rest, "SH"),
            *_commands(),
            ".SH ENVIRONMENT",
            *_list(tuple((name.upper(), str(field.description)) for name, field in Settings.model_fields.items())),
            ".SH EXIT STATUS",
            *_list(_STATUS),
            ".SH FILES",
            *_list(_FILES),
            ".SH SEE ALSO",
            "clustercheckd\\-clustercheck(8), haproxy(1), systemctl(1)",
            "",
        ],
    )


def _commands() -> Iterator[str]:
    """Yield a section for each command."""
    for name in COMMANDS:
        about, rest = _help(name)
        yield f".SH CLUSTERCHECKD {name.upper()}\n{_escaped(about)}"
        yield from _sections(rest, "SS")


def clustercheck_page() -> str:
    """Return the page of the drop-in, made from `clustercheck --help`."""
    return "\n".join(
        [
            _title("clustercheckd-clustercheck"),
            ".SH NAME",
            f"clustercheckd\\-clustercheck \\- {_escaped('drop-in for the clustercheck script')}",
            ".SH SYNOPSIS",
            ".B /usr/lib/clustercheckd/clustercheck",
            "[\\fIuser\\fR [\\fIpassword\\fR ...]]",
            ".SH DESCRIPTION",
            ".nf",
            _escaped(USAGE),
            ".fi",
            ".SH SEE ALSO",
            "clustercheckd(8)",
            "",
        ],
    )


def _help(*command: str) -> tuple[str, str]:
    """Return the parts of a command's --help below its usage: the description, and the sections with the arguments."""
    # One line each: man wraps the lines.
    os.environ["COLUMNS"] = "10000"
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    _, about, rest = said.getvalue().split("\n\n", 2)
    return about, rest


def _sections(text: str, macro: str) -> Iterator[str]:
    """Convert argparse's headings and entries into roff; an entry's text may be on the next line."""
    for line in text.splitlines():
        heading = re.fullmatch(r"(\S.*):", line)
        entry = re.fullmatch(r"  (\S.*?)(?:  +(\S.*))?", line)
        if heading:
            yield f".{macro} {_escaped(heading[1].upper())}"
        elif entry:
            yield ".TP"
            yield f".B {_escaped(entry[1])}"
            if entry[2]:
                yield _escaped(entry[2])
        elif line:
            yield _escaped(line.strip()) if line.startswith(" ") else f".PP\n{_escaped(line)}"


def _list(entries: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for name, text in entries:
        yield f".TP\n.B {_escaped(name)}\n{_escaped(text)}"


def _title(name: str) -> str:
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "0")) or None))
    return f'.TH {_escaped(name).upper()} 8 "{date}" "clustercheckd {__version__}"'


def _escaped(text: str) -> str:
    """Escape a text for roff: hyphens, quotes, backslashes, and dots at the beginning of a line."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return re.sub(r"^\.", "\\\\&.", escaped, flags=re.MULTILINE)


TEXTS: dict[str, Callable[[], str]] = {
    "env": env_file,
    "clustercheckd.8": clustercheckd_page,
    "clustercheckd-clustercheck.8": clustercheck_page,
}

if __name__ == "__main__":
    sys.stdout.write(TEXTS[sys.argv[1]]())
