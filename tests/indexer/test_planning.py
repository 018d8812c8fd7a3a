"""Builds from Python, without the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import read_rows
from wikidx.base.artifacts.home import downloads_path
from wikidx.base.errors import StorageError
from wikidx.base.net.download import SourceFile
from wikidx.base.progress import Progress
from wikidx.corpora.build import StoreOptions
from wikidx.corpora.known.custom import ReadOptions
from wikidx.corpora.known.python_values import given_corpus
from wikidx.corpora.passage import Passage
from wikidx.corpora.resolving import ResolvedCorpus, resolve
from wikidx.corpora.size_estimate import CorpusEstimate
from wikidx.indexer import planning
from wikidx.indexer.build_spec import BuildSpec
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.planning import Build, build, plan
from wikidx.indexer.published.addresses import PUBLISHED, PublishedVectors


def spec_of(folder: Path, *records: Mapping[str, object], indexes: tuple[str, ...] = ("bm25",), **choices: Any) -> BuildSpec:  # noqa: ANN401
    """Return what builds indexes over a file of records; ``choices`` are those of ``resolve``."""
    (folder / "notes.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return BuildSpec(resolve(str(folder / "notes.jsonl"), **choices), indexes)


CAPITAL = {"id": "1", "text": "Thimphu"}


def test_each_step_reports_and_a_finished_build_needs_nothing(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, CAPITAL, name="mine", options=StoreOptions(limit=1), reading=ReadOptions(split="none"))
    steps = dict[str, tuple[int, int | None]]()

    def step(name: str, unit: str) -> Progress:
        return lambda done, total: steps.update({f"{name}, {unit}": (done, total)})

    assert [estimate.step for estimate in plan(spec).estimates] == ["passages", "bm25"]
    manifests = Build(spec, step).run()
    assert {part: manifest.count("rows") for part, manifest in manifests.items()} == {"passages": 1, "bm25": 1}
    assert steps.keys() >= {"passages, passages", "bm25, passages"}
    assert plan(BuildSpec(resolve("mine@1"))).estimates == []


def test_a_plan_names_the_fields_that_are_not_kept(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, {**CAPITAL, "url": "https://example.org", "acl": ["staff"]})
    assert plan(spec).notes == ["fields that are not kept: url, acl (a passage has an id, a title and a text)"]
    Build(spec).run()
    assert plan(spec).notes == []  # once


def test_a_plan_counts_the_passages_that_an_encoder_cuts(tmp_path: Path) -> None:
    long = tmp_path / "long.jsonl"
    long.write_text("".join(json.dumps({"id": str(n), "text": "nile " * n}) + "\n" for n in (10, 300, 5_000, 20)))
    cut = "passages longer than the 256 tokens that minilm reads: about 2 (50.0 %), whose rest is not searched by it"
    assert plan(BuildSpec(resolve(str(long)), ("bm25", "minilm"))).notes == [f"{cut}; --split words splits them"]
    Build(BuildSpec(resolve(str(long)))).run()
    assert plan(BuildSpec(resolve(str(long)), ("minilm",))).notes == [f"{cut}; --split words --force splits them"]
    advice = "; to split them with --split words, name its source: idx build FILE --name long --force"
    assert plan(BuildSpec(resolve("long"), ("minilm",))).notes == [cut + advice]
    assert plan(BuildSpec(resolve(str(long), name="short", reading=ReadOptions(split="words")), ("minilm",))).notes == []
    (note,) = plan(BuildSpec(resolve(str(long), name="halves", reading=ReadOptions(split="words:280")), ("minilm",))).notes
    assert note.endswith("; a smaller --split splits them")


def test_a_build_too_large_for_the_disk_begins_nothing(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(planning, "free_disk_bytes", lambda: 1000)
    with pytest.raises(StorageError, match=r"kB are needed under .*, 1\.0 kB are free: set IDX_HOME to a larger disk"):
        build(BuildSpec(resolve("sample")))
    assert not home.exists()


def test_a_build_too_large_for_the_memory_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    spec = spec_of(tmp_path, CAPITAL)
    monkeypatch.setattr("wikidx.indexer.planning.available_bytes", lambda: 220_000_000)
    assert plan(spec).notes == ["passages takes about 250.0 MB of memory, 220.0 MB are available"]
    monkeypatch.setattr("wikidx.indexer.planning.available_bytes", lambda: 120_000_000)
    with pytest.raises(StorageError, match=r"^passages takes about 250\.0 MB of memory, 120\.0 MB are available: raise this"):
        build(spec)
    assert not home.exists()


def test_an_index_prepared_with_the_passages_takes_memory(tmp_path: Path) -> None:
    """Passages in Python are not followed."""
    records = [{**CAPITAL, "id": str(n)} for n in range(1000)]
    together, alone = (plan(spec_of(tmp_path, *records, indexes=each)).estimates[0].memory_bytes or 0 for each in (("bm25",), ()))
    n_bytes = len("Thimphu") + sum(len(str(n)) for n in range(1000)) / 1000
    assert together - alone == pytest.approx(1000 * (1.02 * n_bytes + 300))
    given = BuildSpec(ResolvedCorpus(given_corpus(["Thimphu"], "made"), StoreOptions()))
    assert given.index_while_storing is None
    assert Build(given).run()["bm25"].count("rows") == 1


def corpus_of(n_passages: int, sample: list[Passage]) -> CorpusEstimate:
    return CorpusEstimate(n_passages, 500, 0, sample)


def test_vectors_take_memory_for_their_network(home: Path) -> None:
    """By hand: 22.6 million float32 weights, 1,024 tokens of 11 times 384 components and a mask, two ranges, and a process's own."""
    spec = BuildSpec(resolve("sample"), ("minilm",), EmbedOptions(device="cpu"))
    estimate = planning._estimate_vectors(spec, encoder_spec("minilm"), corpus_of(1_000_000, []))
    assert (estimate.step, estimate.disk_bytes, estimate.n_truncated) == ("minilm", 1_000_000 * 384 * 4, 0)
    network = 4 * 22.56e6 + 1_024 * (11 * 384 * 4 + 256)
    assert estimate.memory_bytes == pytest.approx(0.8e9 + network + 2 * 4_096 * 384 * 4, rel=0.01)


def test_passages_beyond_the_limit_are_counted() -> None:
    passages = [Passage(str(n), "", "nile " * n) for n in (1, 254, 255, 300, 100_000)] + [Passage("t", "nile " * 200, "nile " * 60)]
    passages += [Passage("half a character", "\ud800", "")]
    spec = BuildSpec(resolve("sample"), ("minilm",), EmbedOptions(device="cpu"))
    assert planning._estimate_vectors(spec, encoder_spec("minilm"), corpus_of(7_000, passages)).n_truncated == 4_000


PUBLISHED_FILES = PublishedVectors(
    files=(SourceFile(name="one", url="https://one"), SourceFile(name="two", url="https://two")),
    format="dpr",
    download_bytes=1_000,
    stored_bytes=2,
)


@pytest.mark.parametrize(("dtype", "component_bytes"), [(None, 2), ("float32", 4), ("float16", 2)])
def test_imported_vectors(dtype: str | None, component_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PUBLISHED, ("wiki2018", "contriever"), PUBLISHED_FILES)
    spec = BuildSpec(resolve("wiki2018"), ("contriever",), EmbedOptions(dtype=dtype))
    estimate = planning._estimate_vectors(spec, encoder_spec("contriever"), corpus_of(1_000_000, []))
    assert (estimate.disk_bytes, estimate.memory_bytes) == (1_000_000 * 768 * component_bytes, 600_000_000)


@pytest.mark.parametrize(("there", "expected"), read_rows("indexer/downloaded.jsonl"))
def test_what_is_downloaded_already_is_not_counted(there: dict[str, int], expected: int, home: Path) -> None:
    folder = downloads_path("wiki2018") / "dpr"
    folder.mkdir(parents=True)
    for name, n_bytes in there.items():
        (folder / name).write_bytes(bytes(n_bytes))
    assert PUBLISHED_FILES.missing_bytes("wiki2018", "dpr") == expected
    assert PUBLISHED_FILES.missing_bytes("wiki2018", "contriever") == 1_000
