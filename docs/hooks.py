"""Hooks of mkdocs: a reference of all commands, pages from outside this folder, links to other files, and examples in docstrings."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from wikidx.runtimes.cli.commands import COMMANDS, command_of, examples_of

ROOT = Path(__file__).parents[1]
CHARTS = (f"benchmarks/charts/{name}.png" for name in ("bm25", "server", "vectors"))
OUTSIDE = ["CHANGELOG.md", "examples/README.md", "benchmarks/README.md", "benchmarks/evidence.md", *CHARTS]
_DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
_COMMANDS = re.compile(r"^```console\n((?:\$ .*\n)+)```$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]+)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference of the commands, and the files from outside under their own paths."""
    for path in OUTSIDE:
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, "reference/commands.md", content="\n\n".join(["# Commands", *map(_section, COMMANDS)])))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links between files of the repository into links between pages, and leave out the prompts of commands without output.

    A file that is no page keeps its name only. Commands without prompts can be copied into a terminal.
    """
    uri = page.file.src_uri
    folder = posixpath.dirname(uri if uri in OUTSIDE else f"docs/{uri}")

    def on_the_site(link: re.Match[str]) -> str:
        mark, text, path, anchor = link.groups(default="")
        target = posixpath.normpath(posixpath.join(folder, path))
        if target not in OUTSIDE and not target.startswith("docs/"):
            return text
        return f"{mark}[{text}]({posixpath.relpath(target.removeprefix('docs/'), posixpath.dirname(uri) or '.')}{anchor})"

    markdown = _COMMANDS.sub(_without_prompts, markdown)
    return _LINK.sub(on_the_site, markdown)


class Doctests(griffe.Extension):
    """Shows examples in docstrings as code."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Put a fence around each paragraph that begins with a prompt."""
        if obj.docstring:
            obj.docstring.value = _DOCTEST.sub(r"```python\n\g<0>\n```", obj.docstring.value)


def _without_prompts(block: re.Match[str]) -> str:
    return "\n".join(["```sh", *(line.removeprefix("$ ") for line in block[1].splitlines()), "```"])


def _section(path: str) -> str:
    """Return a command's help as Markdown."""
    command = command_of(path)
    with command.make_context(f"idx {path}", [], resilient_parsing=True) as context:
        usage = " ".join([f"idx {path}", *command.collect_usage_pieces(context)])
        rows = [_row(*record) for one in command.params if (record := one.get_help_record(context))]
    examples = "\n".join(examples_of(path))
    table = "\n".join(["| argument or option | meaning |", "|---|---|", *rows])
    return f"## `idx {path}`\n\n{_plain(command.help)}\n\n```text\n{usage}\n```\n\n{table}\n\nExamples:\n\n```sh\n{examples}\n```"


def _row(name: str, meaning: str) -> str:
    return f"| `{name.replace('|', '/')}` | {_plain(meaning).replace('|', '/')} |"


def _plain(text: Any) -> str:  # noqa: ANN401 - typer's help
    return re.sub(r"([<>*_\[\]])", r"\\\1", str(text))
