"""Parts of a README: code blocks, inline code, headings, links.

Blocks of ``console`` are lines that begin with ``$`` and run as they stand, each followed by its expected output, if any is shown.
Blocks of ``sh`` cannot run here (a download, GPUs, a cluster): only their options are parsed. Blocks of ``python`` run, except those that
show a file: the text before them ends with "`path`:", or with "line in `TABLE` of `path`:" if they are a line of one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT

READMES = [
    ROOT / name
    for name in (
        "README.md",
        "corpora/README.md",
        "indexer/README.md",
        "retrievers/README.md",
        "retrievers/cluster/README.md",
        "runtimes/README.md",
    )
]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w./]+)`:\s*\Z")
_TABLE = re.compile(r"line in `(\w+)` of `([\w./]+)`:\s*\Z")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A block of code.

    Attributes:
        kind: behind its first fence.
        text: between the fences.
        file: the file that it shows, fully or one line of; "" for a block that runs.
        table: the table that it is a line of; "" for a whole file.
    """

    kind: str
    text: str
    file: str = ""
    table: str = ""


class Shown(NamedTuple):
    """A command of a console, and its output as shown, line by line."""

    command: str
    output: list[str]


def blocks(readme: Path) -> list[Block]:
    text = readme.read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(_BLOCK.findall(text)), f"{readme}: a fence is not closed, or not at the beginning of a line"
    return [_block(text[: found.start()], found[1], found[2]) for found in _BLOCK.finditer(text)]


def _block(before: str, kind: str, text: str) -> Block:
    if line := _TABLE.search(before):
        return Block(kind, text, line[2], line[1])
    file = _FILE.search(before)
    return Block(kind, text, file[1] if file else "")


def shown(block: Block) -> list[Shown]:
    """Return the commands of a console."""
    found = list[Shown]()
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Shown(re.sub(r"\s{3,}# .*", "", line.removeprefix("$ ")), []))
        else:
            found[-1].output.append(line)
    return found


def lines(block: Block) -> list[str]:
    """Return the commands of a block of ``sh``; a backslash continues a line."""
    return block.text.replace("\\\n", " ").splitlines()


def prose(readme: Path) -> str:
    """Return the text without blocks."""
    return _BLOCK.sub("", readme.read_text(encoding="utf-8"))


def inline_code(readme: Path) -> list[str]:
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(readme))]


def links(readme: Path) -> list[str]:
    return _LINK.findall(prose(readme))


def anchors(readme: Path) -> set[str]:
    """Return GitHub's anchors of the headings."""
    headings = re.findall(r"^#+ (.+)$", prose(readme), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
