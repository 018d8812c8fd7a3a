"""Inversion of passages while they are stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from wikidx.base.artifacts.building import lock, staged_recipe, staging_path
from wikidx.base.artifacts.manifest import Manifest
from wikidx.base.errors import ArtifactMismatch, InputError, LockedError, StorageError
from wikidx.corpora.build import StoreOptions, open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.resolving import resolve
from wikidx.corpora.store import PassageStore, StoreWriter
from wikidx.indexer.analysis import Analyzer
from wikidx.indexer.analysis.english import ANALYZER
from wikidx.indexer.build import build_index
from wikidx.indexer.build_spec import BuildSpec
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.indexes.postings import inversion
from wikidx.indexer.indexes.postings.files import BLOCK_ROWS
from wikidx.indexer.indexes.postings.while_storing import FollowingInverter
from wikidx.indexer.planning import Build

WORDS = "river bank water flow gold silver mine deep lake fish boat sail wind storm night day sun moon star".split()


def passages(n: int) -> list[Passage]:
    rng = np.random.default_rng(3)
    drawn = rng.integers(0, len(WORDS), (n, 3)).tolist()
    return [Passage(str(row), "", " ".join(f"{WORDS[word]}{row % 7}" for word in words)) for row, words in enumerate(drawn)]


def write(path: Path, rows: Sequence[Passage]) -> Path:
    path.write_text("".join(json.dumps(row._asdict()) + "\n" for row in rows))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def spec(path: Path, *, skip_bad: bool = False, replace: bool = False) -> BuildSpec:
    return BuildSpec(resolve(str(path), name="made", options=StoreOptions(skip_bad=skip_bad, replace=replace)))


def refuse(error: BaseException) -> Callable[..., object]:
    def refused(*arguments: object) -> object:
        raise error

    return refused


def build_in_one_pass(of: BuildSpec) -> dict[str, Manifest]:
    """Build, and fail if the stored passages are read again."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PassageStore, "read_batches", refuse(AssertionError("they are read again")))
        return Build(of).run()


def files_of_a_second_pass() -> object:
    return build_index("made", "bm25", open_store("made"), force=True).files


def follow(
    folder: Path, rows: Sequence[Passage], n_at_once: int = 16_384, analyzer: Analyzer = ANALYZER, **options: int
) -> dict[str, bytes]:
    """Invert passages and return the files of the blocks."""
    follower = FollowingInverter(folder, analyzer, **options)
    for start in range(0, len(rows), n_at_once):
        follower.add(rows[start : start + n_at_once])
    follower.finish()
    follower.close()
    return contents(folder)


@pytest.mark.parametrize(("analyzer", "n_full"), [(ANALYZER, 2), (Analyzer(name="words", terms=str.split), 1)], ids=["kernel", "Python"])
def test_blocks_are_those_of_the_store(analyzer: Analyzer, n_full: int, tmp_path: Path, build: Callable[..., PassageStore]) -> None:
    rows = passages(n_full * BLOCK_ROWS + 5)
    followed = follow(tmp_path / "followed", rows, n_at_once=10_007, analyzer=analyzer)
    progress = list[int]()
    inversion.invert(build(rows), analyzer, tmp_path / "inverted", lambda done, total: progress.append(done))
    assert progress == [*range(BLOCK_ROWS, len(rows), BLOCK_ROWS), len(rows)]
    assert len(followed) == 3 * (n_full + 1)
    assert followed == contents(tmp_path / "inverted")


def test_an_interrupted_follower_keeps_its_finished_blocks(tmp_path: Path) -> None:
    rows = passages(BLOCK_ROWS + 40_000)
    interrupted = FollowingInverter(tmp_path / "blocks", ANALYZER)
    interrupted.add(rows[: BLOCK_ROWS + 3])
    interrupted._inverter.finish()
    interrupted.close()
    finished = {file: (file.stat().st_ino, file.stat().st_mtime_ns) for file in (tmp_path / "blocks").iterdir()}
    assert len(finished) == 3
    assert follow(tmp_path / "blocks", rows) == follow(tmp_path / "whole", rows, n_at_once=len(rows))
    assert {file: (file.stat().st_ino, file.stat().st_mtime_ns) for file in finished} == finished


@pytest.mark.parametrize("content", [b"", b"no numbers"])
def test_a_corrupt_block_is_inverted_again(tmp_path: Path, content: bytes) -> None:
    sound = follow(tmp_path / "blocks", passages(50))
    (tmp_path / "blocks" / "00000.rows.npz").write_bytes(content)
    assert follow(tmp_path / "blocks", passages(50)) == sound


def interrupt_build(of: BuildSpec) -> None:
    """Build until all passages are read, stored and inverted, and the first pass is about to end."""
    close = FollowingInverter.close

    def finish_and_close(follower: FollowingInverter) -> None:
        follower.finish()
        close(follower)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StoreWriter, "finish", refuse(KeyboardInterrupt()))
        patched.setattr(FollowingInverter, "close", finish_and_close)
        with pytest.raises(KeyboardInterrupt):
            Build(of).run()


def test_an_interrupted_build_resumes_store_and_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.corpora.store.writer._BATCH_PASSAGES", 100)
    path = write(tmp_path / "passages.jsonl", passages(400))
    interrupt_build(spec(path))
    assert (staging_path(index_ref("made", "bm25").path) / "intermediate" / "00000.rows.npz").exists()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(inversion, "_write_block", None)  # the block is there
        found = build_in_one_pass(spec(path))["bm25"]
    assert files_of_a_second_pass() == found.files
    assert not staging_path(index_ref("made", "bm25").path).exists()


@pytest.fixture
def repeating(tmp_path: Path) -> BuildSpec:
    """A file of 300 passages, and one more with the id of another."""
    rows = passages(300)
    rows[40:40] = [Passage(rows[7].id, "", "unheardof words")]
    return spec(write(tmp_path / "passages.jsonl", rows), skip_bad=True)


def test_passages_with_repeated_ids_are_left_out_of_the_index_too(repeating: BuildSpec) -> None:
    found = build_in_one_pass(repeating)
    assert found["passages"].counts == {"rows": 300, "skipped": 1}
    assert found["bm25"].counts["terms"] == len(WORDS) * 7
    assert files_of_a_second_pass() == found["bm25"].files


def test_blocks_of_a_pass_with_repeated_ids_are_no_store_s(repeating: BuildSpec) -> None:
    """The blocks are left by a first pass; the store is finished by a command that prepares no such index."""
    interrupt_build(repeating)
    assert (staging_path(index_ref("made", "bm25").path) / "intermediate" / "00000.rows.npz").exists()
    Build(BuildSpec(repeating.source, ())).run()
    found = Build(repeating).run()["bm25"]
    assert found.counts["terms"] == len(WORDS) * 7
    assert files_of_a_second_pass() == found.files


def test_blocks_of_one_store_are_not_handed_over_to_another(tmp_path: Path) -> None:
    Build(BuildSpec(spec(write(tmp_path / "passages.jsonl", passages(90))).source, ())).run()
    old = open_store("made")
    path = write(tmp_path / "passages.jsonl", passages(200)[100:])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("wikidx.indexer.planning.build_index", None)
        with pytest.raises(TypeError):
            Build(spec(path, replace=True)).run()
    recipe = staged_recipe(index_ref("made", "bm25").path)
    with pytest.raises(ArtifactMismatch, match="replaced meanwhile"):
        build_index("made", "bm25", old)
    assert recipe is not None
    assert staged_recipe(index_ref("made", "bm25").path) == recipe
    assert build_in_one_pass(spec(path))["bm25"].files == files_of_a_second_pass()


def test_a_full_disk_is_one_of_the_passages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreWriter, "_store", refuse(OSError(28, "No space left on device")))
    with pytest.raises(StorageError, match="made/passages has stopped: No space"):
        Build(spec(write(tmp_path / "passages.jsonl", passages(90)))).run()


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [("indexes.postings.inversion._invert_block", refuse(MemoryError()), MemoryError), ("analysis.dictionary._MAX_TERMS", 3, InputError)],
)
def test_what_stops_the_index_does_not_lose_the_passages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object, error: type[Exception]
) -> None:
    monkeypatch.setattr(f"wikidx.indexer.{name}", value)
    with pytest.raises(error):
        Build(spec(write(tmp_path / "passages.jsonl", passages(90)))).run()
    assert len(open_store("made")) == 90


def test_a_bad_record_leaves_nothing_behind(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "passages.jsonl"
    path.write_text('{"id": "1", "text": "one"}\n{"id": "1"}\n')
    with pytest.raises(InputError):
        Build(spec(path)).run()
    assert list((home / "made").rglob("*")) == []


def test_blocks_of_much_text_are_left_to_the_second_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert follow(tmp_path / "blocks", passages(600), n_at_once=50, most_block_characters=2000) == {}
    monkeypatch.setattr(FollowingInverter.__init__, "__defaults__", (2000,))
    found = Build(spec(write(tmp_path / "passages.jsonl", passages(400)))).run()["bm25"]
    assert files_of_a_second_pass() == found.files


def test_an_index_that_another_process_builds_is_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "passages.jsonl", passages(20))
    with lock(index_ref("made", "bm25").path), pytest.raises(LockedError, match="bm25 is being worked on"):
        Build(spec(path)).run()
