from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from wikidx.base.artifacts.building import discard
from wikidx.base.errors import ArtifactMismatch, ArtifactMissing, InputError
from wikidx.base.net.download import LocalFile
from wikidx.base.progress import Progress
from wikidx.corpora.build import SKIPPED, StoreOptions, build_store, open_store, store_manifest, store_path
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.corpora.sources import obtain_files
from wikidx.indexer.build import build_index


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A JSONL file of 1,000 passages."""
    path = tmp_path / "source.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for n in range(1000):
            file.write(json.dumps({"id": str(n), "title": f"T{n // 4}", "text": f"text of passage {n} " * 10}) + "\n")
    return path


def corpus(path: Path, name: str = "mine") -> Corpus:
    return custom_corpus(path, name, ReadOptions())


def test_a_stopped_build_writes_nothing_again_that_is_on_disk(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.corpora.store.writer._BATCH_PASSAGES", 100)

    def stop(done: int, total: int | None) -> None:
        if done >= 500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_store(corpus(source), StoreOptions(), storing=stop)
    with pytest.raises(ArtifactMissing):
        open_store("mine")
    reports: list[int] = []
    build_store(corpus(source), StoreOptions(), storing=lambda done, total: reports.append(done))
    assert reports[0] >= 500


def test_another_reading_rule_under_the_same_name_needs_force(source: Path) -> None:
    build_store(corpus(source), StoreOptions())
    split = custom_corpus(source, "mine", ReadOptions(split="words:10"))
    with pytest.raises(ArtifactMismatch, match="was built with split none, words None, not split words, words 10"):
        build_store(split, StoreOptions())


def test_limit_makes_a_named_subset(source: Path) -> None:
    build_store(corpus(source), StoreOptions(limit=10))
    assert [passage.id for passage in open_store("mine@10").read()] == [str(n) for n in range(10)]
    with pytest.raises(ArtifactMissing):
        open_store("mine")


def test_a_limit_beyond_the_corpus_says_so(source: Path) -> None:
    with pytest.raises(InputError, match="'mine' has only 1,000 records: --limit 5,000 is more"):
        build_store(corpus(source), StoreOptions(limit=5000))


def test_a_limit_counts_records_and_not_what_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    lines = [json.dumps({"id": str(n if n != 3 else 2), "text": "x"}) for n in range(30)]
    path.write_text("\n".join(["not JSON" if n == 5 else line for n, line in enumerate(lines)]) + "\n")
    some = custom_corpus(path, "some", ReadOptions(file_format="jsonl"))
    manifest = build_store(some, StoreOptions(limit=10, skip_bad=True))
    assert (manifest.counts["rows"], manifest.counts["skipped"]) == (9, 2)


def test_nothing_of_what_was_left_out_is_in_any_file(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    with path.open("w") as file:
        for n in range(8_000):
            print(json.dumps({"id": str(n), "title": f"title {n % 97}", "text": f"passage {n} of this corpus, " * 12}), file=file)
            if n % 20 == 0:
                print(json.dumps({"id": None, "title": "WITHHELD", "text": f"CONFIDENTIAL-RECORD-{n} for nobody " * 9}), file=file)
    build_store(custom_corpus(path, "some", ReadOptions(file_format="jsonl")), StoreOptions(skip_bad=True))
    contents = {file.name: file.read_bytes() for file in store_path("some").iterdir() if file.name != SKIPPED}
    assert len(contents) > 5
    assert not [name for name, content in contents.items() if b"CONFIDENTIAL-RECORD" in content]


def test_a_store_that_was_built_meanwhile_is_not_replaced(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.jsonl").write_text('{"id": "a", "title": "t", "text": "x"}\n')
    first = corpus(tmp_path / "other.jsonl")

    def slow_obtain(corpus_: Corpus, path: Path | None, *, verified: bool, progress: Progress) -> list[LocalFile]:
        monkeypatch.setattr("wikidx.corpora.build.obtain_files", obtain_files)
        build_store(corpus(source), StoreOptions())
        return obtain_files(corpus_, path, verified=verified, progress=progress)

    monkeypatch.setattr("wikidx.corpora.build.obtain_files", slow_obtain)
    with pytest.raises(ArtifactMismatch, match="was built from"):
        build_store(first, StoreOptions())
    assert len(open_store("mine")) == 1000


def test_an_index_of_a_store_that_is_gone_is_not_built(source: Path) -> None:
    build_store(corpus(source), StoreOptions())
    store = open_store("mine")
    discard(store_path("mine"))
    with pytest.raises(ArtifactMissing):
        build_index("mine", "bm25", store)


def test_the_manifest_names_source_and_reading(source: Path) -> None:
    first = build_store(corpus(source), StoreOptions())
    assert build_store(corpus(source), StoreOptions()) == first  # building again changes nothing
    recipe = store_manifest("mine").recipe
    assert list(recipe.inputs) == ["source.jsonl.gz"]
    assert recipe.parameters == {"format": "jsonl", "split": "none", "limit": None, "on_error": "fail"}


def _replace(path: Path) -> None:
    with gzip.open(path.with_name("new"), "wt") as file:
        file.write('{"id": "1", "title": "T", "text": "another text"}\n')
    path.with_name("new").rename(path)


@pytest.mark.parametrize("limit", [None, 10])
@pytest.mark.parametrize("moment", ["fetching", "storing"])
def test_a_source_that_changes_after_its_checksum_leaves_no_store(source: Path, limit: int | None, moment: str) -> None:
    content = source.read_bytes()
    with pytest.raises(InputError, match=f"{source} has changed while it was read"):
        build_store(corpus(source), StoreOptions(limit=limit), **{moment: lambda *_: _replace(source)})  # type: ignore[arg-type]
    name = "mine" if limit is None else f"mine@{limit}"
    assert not store_path(name).parent.exists()
    source.write_bytes(content)
    assert build_store(corpus(source), StoreOptions(limit=limit)).count("rows") == (limit or 1000)
