"""What the packages say of the command line: manual pages and bash's completions."""

import argparse
import gzip
import re
import sys
from pathlib import Path

import shtab
from licences import output_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.commands.parser import COMMANDS, parser_of
from app.kinds import SECRET, Row
from app.settings.disabled_file import DISABLED_FILE
from app.settings.env_file import ENV_FILE
from app.settings.settings import TABLE

FILES = {
    ENV_FILE: "settings, one NAME=value a line",
    "/etc/clustercheckd/password": "where the pages put the account's password",
    DISABLED_FILE: "the node is drained while this file exists",
    "/usr/lib/clustercheckd/clustercheck": "replaces the clustercheck script",
    "/usr/lib/systemd/system/clustercheckd.service": "the unit",
    "/usr/share/doc/clustercheckd": "these pages, and examples",
}
_ABOUT = "tell load balancers whether a Galera node may take traffic"
# What is typed after such a flag is a file.
_PATHS = ("FILE", "PATH", "SOCKET", "CA", "CERT", "KEY")


def write_manual_pages(program: Path, folder: Path) -> None:
    """Make clustercheckd(8), and a page for each command.

    `man clustercheckd status` shows clustercheckd-status(8).
    """
    folder.mkdir()
    names = {"": _ABOUT, **{name: command.about for name, command in COMMANDS.items()}}
    for command, words in names.items():
        name = _page_of(command)
        # No line breaks in these.
        others = ", ".join(
            rf"\%{_page_of(other)}(8)" for other in names if other != command
        )
        sections = {
            "NAME": f"{name} \\- {words}",
            "SEE ALSO": f"{others}, and the pages in /usr/share/doc/clustercheckd/docs",
        }
        if not command:
            sections |= _sections_of_all()
        more = folder.parent / f"{name}.h2m"
        more.write_text(
            "".join(f"[{title}]\n{text}\n" for title, text in sections.items())
        )
        asked = ["--help-option", f"{command} --help", "--include", str(more)]
        page = output_of("help2man", "--no-info", "--section=8", *asked, str(program))
        (folder / f"{name}.8.gz").write_bytes(gzip.compress(page.encode(), 9, mtime=0))


def write_completions(path: Path) -> None:
    """Write what bash completes after `clustercheckd`."""
    # Without a command, serve's flags.
    whole = argparse.ArgumentParser(
        "clustercheckd", parents=[_completed("serve")], add_help=False
    )
    whole.add_argument("--version", action="store_true")
    commands = whole.add_subparsers()
    for name in COMMANDS:
        # shtab leaves out a command without help.
        commands.add_parser(name, parents=[_completed(name)], add_help=False, help=name)
    path.parent.mkdir()
    path.write_text(shtab.complete(whole, "bash"))


def _completed(command: str) -> argparse.ArgumentParser:
    """Return a command's parser, with the files that may follow its flags."""
    parser = parser_of(command)
    for action in parser._actions:  # noqa: SLF001 (nothing public lists them)
        if action.metavar in _PATHS:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return parser


def _sections_of_all() -> dict[str, str]:
    """Return the sections that clustercheckd(8) has beside what --help prints."""
    statuses = {
        f"clustercheckd {name}": "; ".join(command.exits)
        for name, command in COMMANDS.items()
    }
    return {
        "EXIT STATUS": _paragraphs(statuses),
        "SETTINGS": "Environment variables, and lines of the env file; a flag takes precedence.\n"
        + _paragraphs({_names_of(row): row.words for row in TABLE.values()}),
        "FILES": _paragraphs(FILES),
    }


def _names_of(row: Row) -> str:
    return f"{row.name.upper()} ({'no flag' if row.kind is SECRET else row.flag})"


def _paragraphs(terms: dict[str, str]) -> str:
    """Return terms and what they mean, for man(7)."""
    return "\n".join(
        f".TP\n.B {_roff(term)}\n{_roff(text)}" for term, text in terms.items()
    )


def _roff(text: str) -> str:
    return re.sub(r"^(?=[.'])", r"\\&", text.replace("\\", r"\e")).replace("-", r"\-")


def _page_of(command: str) -> str:
    return f"clustercheckd-{command}" if command else "clustercheckd"
