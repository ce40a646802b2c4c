"""The pages as the tests read them: fenced blocks with their language, place and mark, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from app.commands import migrate
from app.commands.parser import MIGRATE, parser_of
from tests.unit.manifests import ROOT

PAGES = {
    str(path.relative_to(ROOT)): path for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
}

NOT_CHECKED = re.compile(r"<!-- not checked: (\S.*) -->")
"""The mark of a block that no test checks; it stands on the line above the block and says why."""

_HEADING = re.compile(r"(?P<marks>#+) (?P<text>.+)")
_FENCE = re.compile(r"(?P<indent> *)```(?P<language>\S*)")
_PROMPT = re.compile(r"(?P<host>[a-z]+[0-9]*)?[#$] (?P<command>.*)")
_OPERATORS = {"|", "||", "&&", ";", "&", ">", ">>", "<"}
_REDIRECTIONS = {">", ">>", "<"}


@dataclass(frozen=True)
class Block:
    """A fenced block.

    headings: those it stands under, outermost first. why_not_checked: the reason on the mark above it, None without a
    mark.
    """

    page: str
    line: int
    headings: tuple[str, ...]
    language: str
    text: str
    why_not_checked: str | None

    def __str__(self) -> str:
        """Return where it is."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command that a page tells its readers to type. comment, prompt and continuation marks are gone."""

    block: Block
    line: str

    def programs(self) -> Iterator[list[str]]:
        """Yield the words of each program that the command runs: those of a pipeline, those after `&&`."""
        words: list[str] = []
        skip = False
        lexer = shlex.shlex(self.line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        for word in lexer:
            if skip:
                skip = False
            elif word in _REDIRECTIONS:
                skip = True
            elif word in _OPERATORS:
                yield words
                words = []
            else:
                words.append(word)
        yield words


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    return blocks_in(page, PAGES[page].read_text())


def blocks_under(page: str, heading: str, language: str) -> list[Block]:
    """Return the blocks of a language under a heading of a page, and under the headings below it."""
    return [block for block in blocks_of(page) if block.language == language and heading in block.headings]


def blocks_in(page: str, text: str) -> list[Block]:
    """Return the fenced blocks of a text, without the indentation of the list that they may be in."""
    found: list[Block] = []
    headings: list[str] = []
    opened: tuple[int, re.Match[str], list[str]] | None = None
    above = ""
    for number, line in enumerate(text.splitlines(), 1):
        if opened is None:
            fence = _FENCE.fullmatch(line)
            if fence:
                opened = (number, fence, [])
            else:
                above = line
                heading = _HEADING.fullmatch(line)
                if heading:
                    headings = [*headings[: len(heading["marks"]) - 1], heading["text"]]
            continue
        start, fence, lines = opened
        if line == f"{fence['indent']}```":
            mark = NOT_CHECKED.fullmatch(above.strip())
            inside = "".join(f"{line.removeprefix(fence['indent'])}\n" for line in lines)
            found.append(Block(page, start, tuple(headings), fence["language"], inside, mark[1] if mark else None))
            opened, above = None, ""
        else:
            lines.append(line)
    assert opened is None, f"{page}: a block without an end"
    return found


def all_blocks() -> list[Block]:
    """Return the blocks of all pages."""
    return [block for page in PAGES for block in blocks_of(page)]


def checked_blocks(language: str) -> list[Block]:
    """Return the blocks of a language that are not marked."""
    return [block for block in all_blocks() if block.language == language and block.why_not_checked is None]


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a console block."""
    return [Command(block, command) for command, _ in _typed_and_printed(block)]


def output_of(block: Block) -> dict[str, str]:
    """Return what each command of a console block is said to print; nothing for one that is not shown."""
    return {command: printed for command, printed in _typed_and_printed(block) if printed}


def typed_on_pages(program: str) -> list[tuple[Command, list[str]]]:
    """Return every command that runs a program, with that program's words, from blocks that are not marked."""
    return [
        (command, words)
        for block in checked_blocks("console")
        for command in commands_of(block)
        for words in command.programs()
        if words[:1] == [program]
    ]


def without_blocks(text: str) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def flags_in(text: str) -> set[str]:
    """Return the long flags in a text."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


@cache
def flags_of(command: str) -> frozenset[str]:
    """Return the flags of a command of clustercheckd."""
    parser = migrate.command_parser() if command == MIGRATE else parser_of(command)
    return frozenset(parser.flags())


def _typed_and_printed(block: Block) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    goes_on = False
    for line in block.text.splitlines():
        prompt = _PROMPT.fullmatch(line)
        if goes_on:
            command, printed = found.pop()
            found.append((f"{command.removesuffix(chr(92))}{line.strip()}", printed))
            goes_on = line.endswith("\\")
        elif prompt:
            found.append((re.sub(r"  #.*", "", prompt["command"]).rstrip(), ""))
            goes_on = prompt["command"].endswith("\\")
        else:
            assert found, f"{block}: output without a command: {line}"
            command, printed = found.pop()
            found.append((command, f"{printed}{line}\n"))
    return found
