"""Readers and corpora that are plug-ins: read as those of idx are, recorded by name and checksum, used again without their code."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wikidx.base.errors import ArtifactMismatch, InputError, UnknownNameError
from wikidx.base.plugins import VARIABLE, name_of, plug
from wikidx.corpora.build import StoreOptions, build_store, open_store, skipped_records, store_manifest
from wikidx.corpora.known.custom import ReadOptions
from wikidx.corpora.known.python_values import given_corpus
from wikidx.corpora.passage import Passage
from wikidx.corpora.reading.readers import find_format
from wikidx.corpora.resolving import ResolvedCorpus, article_url, built_names, is_name, known_corpora, known_corpus, resolve
from wikidx.corpora.size_estimate import estimate_corpus
from wikidx.indexer.build_spec import BuildSpec
from wikidx.indexer.catalog import built_indexes
from wikidx.indexer.planning import build
from wikidx.runtimes.cli.completion import any_corpus
from wikidx.testing import check_reader

ARTICLES = """
from xml.etree.ElementTree import iterparse
from wikidx.corpora.reading.compression import open_bytes
from wikidx.corpora.reading.readers import Format
from wikidx.corpora.reading.records import FieldMap


def read_articles(path, on_bad):
    number = 0
    with open_bytes(path) as file:
        for _, element in iterparse(file):
            if element.tag == "article":
                number += 1
                yield number, {field.tag: field.text for field in element}


FIELDS = FieldMap(id="pmid", title="head", text="abstract", section="part")
PUBMED = Format(name="pubmed", records=read_articles, fields=FIELDS)
LONG = Format(name="long", records=read_articles, fields=FIELDS, holds_articles=True)
"""
NOTES = """
from wikidx import Corpus, LocatedPassage, Passage

TEXTS = ["Lead is soft.", "Tin cries.", "Zinc is bluish."]


def read(files, on_bad):
    for number, text in enumerate(TEXTS, 1):
        yield LocatedPassage(Passage(f"n{number}", "Metals", text), "notes", number)


CORPUS = Corpus(name="notes", summary="notes on metals", files=(), read=read, n_passages=3, article_url="https://example.org/{title}")
"""
NOTED = [Passage("n1", "Metals", "Lead is soft."), Passage("n2", "Metals", "Tin cries."), Passage("n3", "Metals", "Zinc is bluish.")]
RUN = """
import sys
from wikidx.runtimes.cli import main

for line in sys.argv[1:]:
    sys.argv = ["idx", *line.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, line
"""
WITHOUT_TEXT = "<article><pmid>9</pmid><head>Empty</head></article>"


@pytest.fixture(autouse=True)
def no_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, content: str) -> Path:
        (tmp_path / name).write_text(content)
        return tmp_path / name

    return write


@pytest.fixture
def articles(written: Callable[[str, str], Path]) -> str:
    return f"{written('articles.py', ARTICLES)}:PUBMED"


@pytest.fixture
def notes(written: Callable[[str, str], Path]) -> str:
    return f"{written('notes.py', NOTES)}:CORPUS"


def xml(n: int, more: str = "") -> str:
    fields = (
        f"<pmid>{i}</pmid><head>On {i}</head><abstract>{' '.join(f'w{i * j % 97}' for j in range(i))} é &lt;</abstract>" for i in range(n)
    )
    return f"<set>{''.join(f'<article>{each}</article>' for each in fields)}{more}</set>"


def plainly_read(content: str) -> list[Passage]:
    """The passages in the XML of ``xml``, by a regular expression."""
    fields = re.findall("<article><pmid>(.*?)</pmid><head>(.*?)</head><abstract>(.*?)</abstract></article>", content)
    return [Passage(id_, title, text.replace("&lt;", "<")) for id_, title, text in fields]


def build_file(path: Path, file_format: str, *, skip_bad: bool = False) -> ResolvedCorpus:
    resolved = resolve(str(path), options=StoreOptions(skip_bad=skip_bad), reading=ReadOptions(file_format=name_of("format", file_format)))
    build_store(resolved.corpus, resolved.options)
    return resolved


def test_files_are_read_by_a_format_of_ones_own(articles: str, written: Callable[[str, str], Path]) -> None:
    content = xml(150)
    build_file(written("data.xml", content), articles)
    assert list(open_store("data").read()) == plainly_read(content)
    sha256 = hashlib.sha256(ARTICLES.encode()).hexdigest()
    parameters = store_manifest("data").recipe.parameters
    assert (parameters["format"], parameters["format_sha256"], parameters["split"]) == ("pubmed", sha256, "none")
    check_reader(articles, written("again.xml", content))
    build_file(written("again.xml", content), "pubmed")
    assert list(open_store("again").read()) == plainly_read(content)


def test_articles_of_it_are_split_as_those_of_other_formats_are(articles: str, written: Callable[[str, str], Path]) -> None:
    path = written("data.xml", xml(150))
    build_file(path, articles.replace("PUBMED", "LONG"))
    found = [(passage.id, passage.text) for passage in open_store("data").read()]
    words = [(passage.id, passage.text.split()) for passage in plainly_read(path.read_text())]
    assert found == [(f"{id_}#{n // 100}", " ".join(of[n : n + 100])) for id_, of in words for n in range(0, len(of), 100)]


def test_its_fields_are_mapped_and_others_told(articles: str, written: Callable[[str, str], Path]) -> None:
    more = "<article><pmid>a</pmid><abstract>text</abstract><head>T</head><part>S</part><year>1999</year><empty/></article>"
    reading = ReadOptions(file_format=name_of("format", articles))
    estimate = estimate_corpus(resolve(str(written("data.xml", xml(0, more))), reading=reading).corpus, StoreOptions())
    assert (estimate.sample, list(estimate.unkept_fields)) == ([Passage("a", "T: S", "text")], ["year"])


def test_records_without_a_text_are_refused_with_their_number_or_skipped(articles: str, written: Callable[[str, str], Path]) -> None:
    path = written("data.xml", xml(20, WITHOUT_TEXT))
    with pytest.raises(InputError, match=r"data\.xml, line 21: the field 'abstract' is missing; correct the file, or skip"):
        build_file(path, articles)
    build_file(path, articles, skip_bad=True)
    assert list(open_store("data").read()) == plainly_read(xml(20))
    assert [(bad.line, bad.reason) for bad in skipped_records("data")] == [(21, "the field 'abstract' is missing")]


@pytest.mark.parametrize("names", [("data",), ("notes", "notes@2")])
def test_what_was_built_by_a_plug_in_is_used_without_it(
    articles: str, notes: str, written: Callable[[str, str], Path], names: tuple[str, ...]
) -> None:
    reference = articles if names == ("data",) else notes
    if reference == articles:
        build_file(written("data.xml", xml(30)), articles)
    else:
        for name in (notes, "notes@2"):
            resolved = resolve(name)
            build_store(resolved.corpus, resolved.options)
    os.environ[VARIABLE] = ""
    told = r"was made with the (format 'pubmed'|corpus 'notes'), a plug-in: name its file again, as --plugin FILE\.py:NAME"
    for name in names:
        assert resolve(name).keep_store
        build(BuildSpec(resolve(name), ("bm25",)))
        assert list(built_indexes(name)) == ["bm25"]
        with pytest.raises(ArtifactMismatch, match=told):
            build(BuildSpec(resolve(name, options=StoreOptions(rebuild=True)), ("bm25",)))
    with pytest.raises(UnknownNameError, match="unknown format 'pubmed': .*known: arrow, beir, contents, "):
        ReadOptions(file_format="pubmed")
    with pytest.raises(UnknownNameError, match="unknown corpus 'notes'"):
        known_corpus("notes")
    plug(reference)
    build(BuildSpec(resolve(names[0], options=StoreOptions(rebuild=True)), ("bm25",)))


def test_a_folder_that_it_reads_records_its_checksum_too(articles: str, written: Callable[[str, str], Path], tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    path = written("set/data.xml", xml(5)).parent
    build_file(path, articles)
    assert store_manifest("set").recipe.parameters["format_sha256"] == hashlib.sha256(ARTICLES.encode()).hexdigest()
    os.environ[VARIABLE] = ""
    build(BuildSpec(resolve("set"), ("bm25",)))  # by name, without the plug-in
    other = f"{written('other.py', ARTICLES + '# changed')}:PUBMED"
    with pytest.raises(ArtifactMismatch, match="was built with format_sha256"):
        build_file(path, other)


def test_another_version_of_it_reads_nothing_again_unless_forced(articles: str, written: Callable[[str, str], Path]) -> None:
    path = written("data.xml", xml(5))
    first = build_file(path, articles).corpus.reading["format_sha256"]
    os.environ[VARIABLE] = ""
    other = f"{written('other.py', ARTICLES.replace('field.text for', 'field.text and field.text.upper() for'))}:PUBMED"
    with pytest.raises(ArtifactMismatch, match=f"was built with format_sha256 {first}, not format_sha256 .*--force") as told:
        build_file(path, other)
    assert hashlib.sha256(Path(other.rpartition(":")[0]).read_bytes()).hexdigest() in str(told.value)
    build(BuildSpec(resolve("data"), ("bm25",)))  # the store is kept
    with pytest.raises(ArtifactMismatch, match=rf"another version of the format 'pubmed' \(sha256 {str(first)[:12]}…\) than {other}"):
        build_store(resolve("data", options=StoreOptions(rebuild=True)).corpus, StoreOptions(rebuild=True))
    assert list(open_store("data").read()) == plainly_read(xml(5))
    resolved = resolve("data", options=StoreOptions(replace=True, rebuild=True))
    build_store(resolved.corpus, resolved.options)
    assert [passage.text for passage in open_store("data").read()] == [passage.text.upper() for passage in plainly_read(xml(5))]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("yield 1, {'id': '1', 'text': 'a'}\n    1 / 0", "fails at record 2 of {path}, line 7: ZeroDivisionError: division by zero"),
        ("return [].pop()", "fails at record 1 of {path}, line 6: IndexError: pop from empty list"),
        ("return None", "fails at record 1 of {path}: TypeError: 'NoneType' object is not iterable"),
        ("yield Passage('1', 'T', 'a')", "yields Passage(id='1', title='T', text='a') as record 1 of {path}: yield (number, {'id'"),
        ("yield 1, 'a'", "yields (1, 'a') as record 1 of {path}: yield (number, {'id'"),
        ("yield 7, {'id': 1.5, 'text': 'a'}", "{path}, line 7: the field 'id' is a number, not a string"),
        ("on_bad(BadRecord(str(path), 3, 'no card'))", "{path}, line 3: no card; correct the file, or skip unusable records"),
    ],
)
def test_what_is_wrong_in_a_reader_is_told_in_a_line(written: Callable[[str, str], Path], code: str, message: str) -> None:
    imports = "from wikidx.corpora.passage import BadRecord, Passage\nfrom wikidx.corpora.reading.readers import Format\n"
    file = written("cards.py", f"{imports}\n\ndef read(path, on_bad):\n    {code}\n\n\nCARDS = Format(name='cards', records=read)\n")
    path = written("data", "content")
    with pytest.raises(InputError) as told:
        build_file(path, f"{file}:CARDS")
    assert message.replace("{path}", str(path)) in str(told.value)
    assert "\n" not in str(told.value)


def test_a_decoder_that_fails_is_told(written: Callable[[str, str], Path]) -> None:
    code = "from wikidx.corpora.reading.readers import Format\nfrom wikidx.corpora.reading.records import FieldMap\n"
    code += "C = Format(name='c', records=lambda path, on_bad: [(1, {'id': '1', 'text': 'a'})], fields=FieldMap(decode=bytes.decode))\n"
    with pytest.raises(InputError, match=r"c\.py fails when it decodes a text: TypeError"):
        list(find_format(name_of("format", f"{written('c.py', code)}:C")).read(Path("data")))


def test_a_corpus_of_ones_own_is_built_by_its_reference_and_known_by_its_name(notes: str) -> None:
    assert not is_name("notes")
    resolved = resolve(notes)
    assert (resolved.name, resolved.keep_store) == ("notes", False)
    build_store(resolved.corpus, resolved.options)
    assert list(open_store("notes").read()) == NOTED
    assert store_manifest("notes").recipe.parameters["corpus_sha256"] == hashlib.sha256(NOTES.encode()).hexdigest()
    assert [(corpus.name, corpus.summary) for corpus in known_corpora()][-1] == ("notes", "notes on metals")
    assert known_corpus("notes").article_url == article_url("notes") == "https://example.org/{title}"
    assert list(any_corpus("no")) == ["notes"]
    subset = resolve("notes@2")
    build_store(subset.corpus, subset.options)
    assert list(open_store("notes@2").read()) == NOTED[:2]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("yield LocatedPassage(Passage('1', '', 'a'), 'f', 1)\n    {}['x']", "fails at record 2 of notes, line 6: KeyError: 'x'"),
        (
            "yield LocatedPassage(Passage('1', None, 'a'), 'f', 1)",
            "text='a'), file='f', line=1, span=None) as record 1 of notes: yield LocatedPassage(Passage(id, title, text), file, line)",
        ),
    ],
)
def test_what_is_wrong_in_a_corpus_is_told_in_a_line(written: Callable[[str, str], Path], code: str, message: str) -> None:
    file = written(
        "notes.py",
        "from wikidx import Corpus, LocatedPassage, Passage\n\n\ndef read(files, on_bad):\n"
        f"    {code}\n\n\nCORPUS = Corpus(name='notes', summary='', files=(), read=read, n_passages=None)\n",
    )
    with pytest.raises(InputError) as told:
        build_store(resolve(f"{file}:CORPUS").corpus, StoreOptions())
    assert message in str(told.value)


def test_names_that_another_corpus_has_are_refused(notes: str, written: Callable[[str, str], Path]) -> None:
    build_store(given_corpus(["a text"], "notes"), StoreOptions())
    with pytest.raises(
        InputError, match=rf"'notes' was built from a file or from passages of yours, and {notes} has its name: give the plug-in another"
    ):
        resolve(notes)
    file = written("notes.jsonl", json.dumps({"id": "1", "text": "a"}))
    with pytest.raises(InputError, match="'notes' is the name of a corpus that idx knows: choose another one with --name"):
        resolve(str(file))
    with pytest.raises(InputError, match="'notes' is the name of a corpus that idx knows: choose another one"):
        given_corpus(["a text"], "notes")
    with pytest.raises(InputError, match="'unnamed-0123abcd' cannot be a name: idx gives such names to corpora without one"):
        resolve(f"{written('other.py', NOTES.replace('notes', 'unnamed-0123abcd'))}:CORPUS")
    with pytest.raises(InputError, match="--format is for corpora from a file; 'notes' has its own"):
        resolve(notes, reading=ReadOptions(file_format="tsv"))


def test_commands_know_them_by_reference_by_variable_and_by_entry_point(
    articles: str, notes: str, written: Callable[[str, str], Path], tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    (installed / "wikidx_notes-1.dist-info").mkdir(parents=True)
    (installed / "wikidx_notes-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: wikidx-notes\nVersion: 1\n")
    points = "[wikidx.corpus]\nminerals = packaged:CORPUS\n[wikidx.format]\nmedline = packaged:PUBMED\n"
    (installed / "wikidx_notes-1.dist-info" / "entry_points.txt").write_text(points)
    (installed / "packaged.py").write_text(NOTES + ARTICLES)
    path = written("data.xml", xml(12))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])}
    commands = [
        f"build {path} --name by-reference --format {articles}",
        f"build {path} --name by-name --format pubmed",
        f"build {path} --name by-entry-point --format medline",
        f"build {notes}",
        "build minerals",
        "list",
    ]
    done = subprocess.run([sys.executable, "-c", RUN, *commands], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("by-reference", "by-name", "by-entry-point"):
        assert list(open_store(name).read()) == plainly_read(path.read_text())
    assert list(open_store("notes").read()) == list(open_store("minerals").read()) == NOTED
    assert "minerals  notes on metals" in done.stdout
    commands = ["list", "check notes", "check by-reference", "search notes tin", "remove notes --yes", "remove by-reference --yes"]
    done = subprocess.run([sys.executable, "-c", RUN, *commands], capture_output=True, text=True, check=False)  # without the plug-ins
    assert done.returncode == 0, done.stderr
    assert re.search(r"^notes  \(corpus_sha256 .*\n +passages +3 rows", done.stdout, re.MULTILINE)
    assert "Tin cries." in done.stdout
    assert built_names() == ["by-entry-point", "by-name", "minerals"]


@pytest.mark.parametrize("marks", ["pages=['one']", "headings=[(0, 1, 'A')]", "headings=[Heading(0, 1, None)]", "pages=7"])
def test_documents_with_other_pages_or_headings_are_refused_in_a_line(written: Callable[[str, str], Path], marks: str) -> None:
    code = f"from wikidx import Document, Format, Heading\nF = Format(name='f', documents=lambda path: [Document('d', '', 'x', {marks})])\n"
    reference = f"{written('marks.py', code)}:F"
    with pytest.raises(InputError, match=r"yields Document\(.* as record 1 of .*: yield Document\(id, title, text, pages, headings\)"):
        build_file(written("data.x", "x"), reference)
