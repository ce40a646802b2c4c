"""The pages as the tests read them: fenced blocks, and the commands in them."""

import re
import shlex
from dataclasses import dataclass

from tests.unit.manifests import ROOT

PAGES = {
    str(path.relative_to(ROOT)): path
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
}

_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_PROMPT = re.compile(r"^(?:[a-z]+[0-9]*)?[#$] ", re.MULTILINE)


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block, without the indentation of the list that it may be in.

    headings: those it stands under, outermost first.
    """

    page: str
    line: int
    headings: tuple[str, ...]
    language: str
    text: str

    def __str__(self) -> str:
        """Return where it is."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command on a page, without its prompt, its comment and the backslashes in it."""

    block: CodeBlock
    line: str

    def programs(self) -> list[list[str]]:
        """Return the words of each program that it runs, as in a pipeline or after `&&`."""
        lexer = shlex.shlex(self.line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        programs: list[list[str]] = [[]]
        for word in lexer:
            if word in {"|", "||", "&&", ";", "&"}:
                programs.append([])
            else:
                programs[-1].append(word)
        return programs


def blocks_of(page: str) -> list[CodeBlock]:
    """Return the fenced blocks of a page."""
    text = PAGES[page].read_text()
    blocks = []
    for match in _BLOCK.finditer(text):
        before = text[: match.start()]
        headings: list[str] = []
        for marks, heading in _HEADING.findall(without_blocks(before)):
            headings[len(marks) - 1 :] = [heading]
        line = before.count("\n") + 1
        inside = re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        blocks.append(CodeBlock(page, line, tuple(headings), match["language"], inside))
    return blocks


def blocks_in(language: str) -> list[CodeBlock]:
    """Return the blocks of a language on all pages."""
    return [
        block
        for page in PAGES
        for block in blocks_of(page)
        if block.language == language
    ]


def blocks_under(page: str, heading: str, language: str) -> list[CodeBlock]:
    """Return the blocks of a language under a heading of a page, at any depth."""
    blocks = [block for block in blocks_of(page) if block.language == language]
    return [block for block in blocks if heading in block.headings]


def commands_of(block: CodeBlock) -> list[Command]:
    """Return the commands of a console block."""
    before, *typed = _PROMPT.split(re.sub(r"\\\n\s*", "", block.text))
    assert not before, f"{block}: output without a command"
    commands = []
    for text in typed:
        line = text.partition("\n")[0]
        commands.append(Command(block, re.sub(r"  #.*", "", line).rstrip()))
    return commands


def typed_on_pages(program: str) -> list[tuple[Command, list[str]]]:
    """Return every command that runs a program, with that program's words."""
    return [
        (command, words)
        for block in blocks_in("console")
        for command in commands_of(block)
        for words in command.programs()
        if words[:1] == [program]
    ]


def without_blocks(text: str) -> str:
    """Return a page without its fenced blocks."""
    return _BLOCK.sub("", text)
