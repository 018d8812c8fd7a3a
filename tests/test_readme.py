"""Examples in the README and the documentation run as shown, and the names in them exist; see ``readme_blocks`` for their conventions."""

from __future__ import annotations

import ast
import gzip
import importlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from tests.conftest import ROOT
from tests.idx_line import complaint, parse
from tests.readme_blocks import PAGES, Block, anchors, blocks, inline_code, lines, links, prose, shown, shows_plug_in
from tests.readme_reader import Reader
from tests.runtimes.command_line import Command
from tests.runtimes.test_help import PARSED
from wikidx.corpora import CORPORA
from wikidx.corpora.known import sample
from wikidx.runtimes.cli.commands import app
from wikidx.runtimes.experiments.files import read_experiment

yaml = importlib.import_module("yaml")  # it has no types

MAIN = ROOT / "README.md"
ALL = [*PAGES, ROOT / "benchmarks" / "README.md"]

PASSAGES = [
    {"id": "1", "title": "Thimphu", "text": "Thimphu is the capital of Bhutan."},
    {"id": "2", "title": "Answer", "text": "an answer to a question"},
]
OTHER_OPTIONS = {"--constraint", "--editable", "--index-url", "--no-deps", "--faiss_type", "--retrieval_method"}  # of pip and FlashRAG
GENERATED = {ROOT / "docs" / "reference" / "commands.md"}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def reader(request: pytest.FixtureRequest, idx: Command, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """A reader with some files, who has built the sample before unless the page does without; make quickstart builds it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    text = "".join(json.dumps(passage) + "\n" for passage in PASSAGES)
    (folder / "passages.jsonl").write_text(text)
    (folder / "passages.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    if request.node.get_closest_marker("slow"):
        shutil.copytree(request.getfixturevalue("embedded_sample"), home)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    reading = Reader(idx, folder)
    yield reading
    reading.close()


@pytest.fixture
def idx(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def running_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.kind in ("console", "python") and not block.file]


# All but one take seconds to a minute: encoders, Java, FAISS's indexes, servers
@pytest.mark.parametrize(
    "page",
    [
        page if named(page) == "docs/how-to/corpora.md" else pytest.param(page, marks=pytest.mark.slow)
        for page in PAGES
        if running_blocks(page)
    ],
    ids=named,
)
def test_what_a_page_shows_runs(page: Path, reader: Reader) -> None:
    for block in running_blocks(page):
        reader.follow(block)


@pytest.fixture
def plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the plug-ins that pages show into the working directory, from which options load them."""
    for block in (block for page in PAGES for block in blocks(page) if shows_plug_in(block)):
        (tmp_path / block.file).parent.mkdir(exist_ok=True)
        (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IDX_PLUGINS", "")


@pytest.mark.usefixtures("plug_ins")
@pytest.mark.parametrize("page", ALL, ids=named)
def test_what_cannot_be_run_is_parsed(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.kind == "sh":
            for line in lines(block):
                parse_shell(line)
        elif block.kind == "py":
            ast.parse(block.text)
        elif block.kind == "json":
            json.loads(block.text)
        elif block.kind == "toml" and not block.file:
            (tmp_path / "mine.toml").write_text(block.text, encoding="utf-8")
            assert read_experiment(str(tmp_path / "mine.toml")).rows
        elif block.kind == "yaml":
            assert yaml.safe_load(block.text).keys() & {"cluster_name", "scrape_configs"}
        elif block.kind == "console" and page not in PAGES:
            for one in shown(block):
                parse_shell(one.command)
        else:
            assert block.kind in ("console", "python", "text") or block.file or page not in PAGES


def parse_shell(line: str) -> None:
    """Parse the ``idx`` of a line, be it behind settings of variables or in the quotes of another command."""
    words = shlex.split(line)
    while "=" in words[0].partition("-")[0]:
        words = words[1:]
    if words[0] == "idx":
        parse(words[1:])
        return
    if words[0] == "docker":
        assert all((ROOT / word).exists() for word in words if word.startswith("docker/")), line
        image = next(place for place, word in enumerate(words) if word in ("idx", "idx-cuda"))
        parse(words[image + 1 :] if words[1] == "run" and words[image + 1 :] else ["--help"])
        return
    assert words[:2] in (["ray", "exec"], ["python", "-m"]), line
    if words[0] == "ray":
        parse_shell(words[-1])
    else:
        module = ROOT / Path(*words[2].split("."))
        assert module.with_suffix(".py").exists() or (module / "__main__.py").exists(), line


@pytest.mark.usefixtures("plug_ins")
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_and_options_in_the_text_exist(page: Path) -> None:
    """Whole lines of ``idx`` in the text are parsed; of parts of lines every option is one of some command."""
    options = {option for command in PARSED.values() for one in command.params for option in (*one.opts, *one.secondary_opts)}
    options |= {option for one in get_command(app).params for option in one.opts} | {"--help"} | OTHER_OPTIONS
    for code in inline_code(page):
        if code.startswith("python "):  # of another tool
            continue
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code):
            assert option in options, f"{named(page)}: {code}"
        if re.fullmatch(r"idx [\w@./: =-]+", code) and not {"COMMAND", "--install-completion"} & set(code.split()):
            said = complaint(code.split()[1:])
            assert not said or "Missing" in said, said  # a command and one of its options may be named alone


@pytest.mark.parametrize("page", ALL, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target in GENERATED or target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_and_functions_that_are_named_are_there(page: Path) -> None:
    for code in inline_code(page):
        place = re.fullmatch(r"((?:wikidx/base|corpora|indexer|retrievers|runtimes|benchmarks|tests)/[\w./]*\.\w+)(?::(\w+))?", code)
        if place is None or "NAME" in code or place[1] in {block.file for block in blocks(page)}:
            continue
        assert (ROOT / place[1]).exists(), code
        if place[2]:
            tree = ast.walk(ast.parse((ROOT / place[1]).read_text(encoding="utf-8")))
            assert place[2] in {node.name for node in tree if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}, code


def test_the_readme_is_short_and_leads_to_the_documentation() -> None:
    assert len(MAIN.read_text(encoding="utf-8").split()) <= 900
    assert {(ROOT / link.partition("#")[0]).resolve() for link in links(MAIN)} >= {
        ROOT / "docs" / "index.md",
        ROOT / "benchmarks" / "README.md",
    }


@pytest.mark.parametrize("page", ALL, ids=named)
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", prose(page))) <= targets


def test_the_sample_corpus_is_as_large_as_said() -> None:
    text = " ".join(prose(MAIN).split())
    assert f"{sample.CORPUS.n_passages} short passages" in text
    assert f"{len(sample.questions())} questions" in text


def test_every_known_corpus_is_described() -> None:
    text = prose(ROOT / "docs" / "how-to" / "corpora.md")
    assert all(name in text for name in CORPORA)
