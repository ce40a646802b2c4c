"""The pages as the tests read them: fenced blocks with their language, place and mark, and the
commands in them.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tests.unit.manifests import ROOT

PAGES = {
    str(path.relative_to(ROOT)): path
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
}

# A mark on the line above a block says why no test checks it.
_BLOCK = re.compile(
    r"^(?: *<!-- not checked: (?P<why>\S[^\n]*) -->\n)?"
    r"(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_PROMPT = re.compile(r"^(?:[a-z]+[0-9]*)?[#$] ", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block, without the indentation of the list that it may be in.

    headings: those it stands under, outermost first. why_not_checked: the reason on the mark above
    it, None without a mark.
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
    """A command that a page tells its readers to type, without comment, prompt and continuation
    marks.

    printed: what the page says that it prints; empty if the page does not say it.
    """

    block: Block
    line: str
    printed: str

    def programs(self) -> list[list[str]]:
        """Return the words of each program that the command runs: those of a pipeline, those after
        `&&`.
        """
        lexer = shlex.shlex(self.line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        programs: list[list[str]] = [[]]
        for word in lexer:
            if word in {">", ">>", "<"}:
                next(lexer)
            elif word in {"|", "||", "&&", ";", "&"}:
                programs.append([])
            else:
                programs[-1].append(word)
        return programs


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    return list(blocks_in(page, PAGES[page].read_text()))


def blocks_under(page: str, heading: str, language: str) -> list[Block]:
    """Return the blocks of a language under a heading of a page, and under the headings below it."""
    return [
        block
        for block in blocks_of(page)
        if block.language == language and heading in block.headings
    ]


def blocks_in(page: str, text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a text."""
    for found in _BLOCK.finditer(text):
        headings: list[str] = []
        for marks, words in re.findall(
            r"^(#+) (.+)$", without_blocks(text[: found.start()]), re.MULTILINE
        ):
            headings[len(marks) - 1 :] = [words]
        line = text.count("\n", 0, found.start("indent")) + 1
        inside = re.sub(f"^{found['indent']}", "", found["text"], flags=re.MULTILINE)
        yield Block(page, line, tuple(headings), found["language"], inside, found["why"])


def checked_blocks(*languages: str) -> list[Block]:
    """Return the blocks of these languages, or of all, that are not marked."""
    blocks = [block for page in PAGES for block in blocks_of(page) if block.why_not_checked is None]
    return [block for block in blocks if not languages or block.language in languages]


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a console block."""
    before, *typed = _PROMPT.split(re.sub(r"\\\n\s*", "", block.text))
    assert not before, f"{block}: output without a command"
    lines = [one.partition("\n") for one in typed]
    return [
        Command(block, re.sub(r"  #.*", "", line).rstrip(), printed) for line, _, printed in lines
    ]


def typed_on_pages(program: str) -> list[tuple[Command, list[str]]]:
    """Return every command that runs a program, with that program's words, from blocks that are not
    marked.
    """
    return [
        (command, words)
        for block in checked_blocks("console")
        for command in commands_of(block)
        for words in command.programs()
        if words[:1] == [program]
    ]


def without_blocks(text: str) -> str:
    """Return a page without its fenced blocks."""
    return _BLOCK.sub("", text)


def flags_in(text: str) -> set[str]:
    """Return the long flags in a text."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
