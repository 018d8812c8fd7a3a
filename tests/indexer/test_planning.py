"""Builds from Python, without the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from wikidx.base.errors import StorageError, UnknownNameError
from wikidx.base.progress import Progress
from wikidx.corpora.build import StoreOptions
from wikidx.corpora.estimate import CorpusEstimate
from wikidx.corpora.known.custom import ReadOptions
from wikidx.corpora.known.given import given_corpus
from wikidx.corpora.resolving import ResolvedCorpus, resolve
from wikidx.indexer import estimate
from wikidx.indexer.planning import BuildSpec, build, plan, run_build

BUILD = """
import re, sys
from wikidx.corpora.resolving import resolve
from wikidx.indexer.planning import BuildSpec, build
found = build(BuildSpec(resolve("sample@100"), ("bm25", "minilm-ivf", "minilm-int8")))
print(*found, {part: manifest.count("rows") for part, manifest in found.items()}["minilm-ivf"])
print([name for name in sys.modules if re.match(r"wikidx\\.(runtimes|retrievers)|typer|rich", name)])
"""


@pytest.mark.slow  # half a minute in a process of its own
def test_python_builds_all_that_the_command_line_does_without_the_packages_above() -> None:
    ran = subprocess.run([sys.executable, "-c", BUILD], capture_output=True, text=True, check=True, cwd=ROOT)
    names, modules = ran.stdout.splitlines()
    assert names == "passages bm25 minilm minilm-ivf minilm-int8 100"
    assert modules == "[]"


def test_each_step_reports_its_progress_and_a_finished_build_needs_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"id": "1", "title": "Thimphu", "text": "the capital of Bhutan"}\n')
    spec = BuildSpec(resolve(str(tmp_path / "notes.jsonl"), name="mine", options=StoreOptions(limit=1), reading=ReadOptions(split="none")))
    steps = dict[str, tuple[int, int | None]]()

    def step(name: str, unit: str) -> Progress:
        return lambda done, total: steps.update({f"{name}, {unit}": (done, total)})

    assert [estimate.step for estimate in plan(spec).estimates] == ["passages", "bm25"]
    manifests = run_build(spec, step)
    assert {part: manifest.count("rows") for part, manifest in manifests.items()} == {"passages": 1, "bm25": 1}
    assert steps.keys() >= {"passages, passages", "bm25, passages"}
    assert plan(BuildSpec(resolve("mine@1"))).estimates == []


def test_a_plan_names_the_fields_that_are_not_kept(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"id": "1", "text": "Thimphu", "url": "https://example.org", "acl": ["staff"]}\n')
    spec = BuildSpec(resolve(str(tmp_path / "notes.jsonl")))
    assert plan(spec).notes == ["fields that are not kept: url, acl (a passage has an id, a title and a text)"]
    run_build(spec)
    assert plan(spec).notes == []  # once


def test_a_plan_counts_the_passages_that_an_encoder_cuts_and_says_how_to_split_them(tmp_path: Path) -> None:
    long = tmp_path / "long.jsonl"
    long.write_text("".join(json.dumps({"id": str(n), "text": "nile " * n}) + "\n" for n in (10, 300, 5_000, 20)))
    cut = "passages longer than the 256 tokens that minilm reads: about 2 (50.0 %), whose rest is not searched by it"
    assert plan(BuildSpec(resolve(str(long)), ("bm25", "minilm"))).notes == [f"{cut}; --split words splits them"]
    run_build(BuildSpec(resolve(str(long))))
    assert plan(BuildSpec(resolve(str(long)), ("minilm",))).notes == [f"{cut}; --split words --force splits them"]
    advice = "; to split them with --split words, name its source: idx build FILE --name long --force"
    assert plan(BuildSpec(resolve("long"), ("minilm",))).notes == [cut + advice]
    assert plan(BuildSpec(resolve(str(long), name="short", reading=ReadOptions(split="words")), ("minilm",))).notes == []
    (note,) = plan(BuildSpec(resolve(str(long), name="halves", reading=ReadOptions(split="words", n_words=280)), ("minilm",))).notes
    assert note.endswith("; fewer --words splits them")


def test_a_build_for_which_the_disk_is_too_small_begins_nothing(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(estimate, "free_disk_bytes", lambda: 1000)
    with pytest.raises(StorageError, match=r"kB are needed under .*, 1\.0 kB are free: set IDX_HOME to a larger disk"):
        build(BuildSpec(resolve("sample")))
    assert not home.exists()


def test_an_index_that_there_cannot_be_is_refused_with_near_names() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'minilm-ivf'"):
        BuildSpec(resolve("sample"), ("minilm-ifv",))


def test_a_plan_says_which_step_takes_more_memory_than_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.jsonl").write_text('{"id": "1", "text": "Thimphu"}\n')
    spec = BuildSpec(resolve(str(tmp_path / "notes.jsonl")))
    monkeypatch.setattr("wikidx.indexer.estimate.available_bytes", lambda: 220_000_000)
    assert plan(spec).notes == ["passages takes about 250.0 MB of memory, 220.0 MB are available"]


def test_an_index_that_is_prepared_with_the_passages_takes_less_time_after_them(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("".join(f'{{"id": "{n}", "text": "Thimphu"}}\n' for n in range(1000)))
    path = str(tmp_path / "notes.jsonl")
    together = {estimate.step: estimate for estimate in plan(BuildSpec(resolve(path))).estimates}
    run_build(BuildSpec(resolve(path), ()))
    (alone,) = plan(BuildSpec(resolve(path))).estimates
    (passages,) = plan(BuildSpec(resolve(path, name="other"), ())).estimates
    assert 0 < (together["bm25"].time_s or 0) < 0.2 * (alone.time_s or 0)
    assert (together["passages"].time_s or 0) > (passages.time_s or 0)
    assert (together["passages"].memory_bytes or 0) > (passages.memory_bytes or 0)


def test_no_time_is_saved_where_nothing_is_prepared_to_the_end(tmp_path: Path) -> None:
    """Passages in Python are not followed, and the follower stops at a block of 65,536 passages with over 128 Mi characters."""
    (tmp_path / "notes.jsonl").write_text('{"id": "1", "text": "Thimphu"}\n')
    spec = BuildSpec(resolve(str(tmp_path / "notes.jsonl")))
    for n_passages, passage_bytes, expected in ((70_000, 2048, "bm25"), (70_000, 2049, None), (1000, 100_000, "bm25")):
        assert spec.expected_following(CorpusEstimate(n_passages, passage_bytes, 0, [])) == expected
    given = ResolvedCorpus(given_corpus(["Thimphu"], "made"), StoreOptions())
    assert BuildSpec(given).following is None
    assert run_build(BuildSpec(given))["bm25"].count("rows") == 1


def test_a_build_for_which_memory_is_far_too_small_begins_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"id": "1", "text": "Thimphu"}\n')
    monkeypatch.setattr("wikidx.indexer.estimate.available_bytes", lambda: 120_000_000)
    with pytest.raises(StorageError, match=r"^passages takes about 250\.0 MB of memory, 120\.0 MB are available: raise this"):
        build(BuildSpec(resolve(str(tmp_path / "notes.jsonl"))))
    assert not home.exists()
