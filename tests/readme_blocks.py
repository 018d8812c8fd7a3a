"""Parts of the README and of the documentation's pages: code blocks, inline code, headings, links.

Blocks of ``console`` are lines that begin with ``$`` and run as they stand, each followed by its expected output, if any is shown.
Blocks of ``sh`` and ``py`` cannot run here (a download, GPUs, a cluster, a package that is not installed): they are parsed. Blocks of
``python`` run, except those that show a file: the text before them ends with "`path`:". A block of ``text`` right behind one of ``python``
shows what it prints.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OUTPUT = re.compile(r"\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`(\w[\w./]*)`:\s*\Z")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A block of code.

    Attributes:
        kind: behind its first fence.
        text: between the fences.
        file: the file that it shows, or a table at the end of it, if it is of this tree and of TOML; "" for a block that runs.
        output: what it prints, as shown right behind it.
    """

    kind: str
    text: str
    file: str = ""
    output: str = ""


def shows_plug_in(block: Block) -> bool:
    """Return whether a block shows a file of a user's folder, not of this tree."""
    return "." in block.file and block.file.split("/")[0] not in ("corpora", "indexer", "retrievers", "runtimes")


class Shown(NamedTuple):
    """A command of a console, and its output as shown, line by line."""

    command: str
    output: list[str]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(_BLOCK.findall(text)), f"{page}: a fence is not closed, or not at the beginning of a line"
    return [_block(text[: found.start()], found[1], found[2], text[found.end() + 1 :]) for found in _BLOCK.finditer(text)]


def _block(before: str, kind: str, text: str, behind: str) -> Block:
    file = _FILE.search(before)
    output = _OUTPUT.match(behind)
    return Block(kind, text, file[1] if file else "", output=output[1] if output and kind == "python" else "")


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


def prose(page: Path) -> str:
    """Return the text without blocks."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def inline_code(page: Path) -> list[str]:
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(page))]


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Return GitHub's anchors of the headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
