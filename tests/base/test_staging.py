from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import file_limit
from wikidx.base.artifacts import building as staging
from wikidx.base.artifacts.building import ArtifactSpec, BuildResult, build_artifact, discard, lock, staged_bytes, staging_path
from wikidx.base.artifacts.manifest import MANIFEST, Manifest, Recipe
from wikidx.base.errors import ArtifactCorrupt, InputError, LockedError, StagingCorrupt, StorageError

RECIPE = Recipe(kind="thing", format_version=1, parameters={"size": 3}, inputs={})
OTHER = Recipe(kind="thing", format_version=1, parameters={"size": 4}, inputs={})


@pytest.fixture
def target(home: Path) -> Path:
    return home / "things" / "one"


class FakeWriter:
    """A writer of an intermediate file and a file that records existing ones; may be stopped in between."""

    def __init__(self, stop: BaseException | None = None) -> None:
        self.found: list[str] = []
        self._stop = stop

    def __call__(self, folder: Path) -> BuildResult:
        self.found = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.bin"))
        (folder / staging.INTERMEDIATE).mkdir(exist_ok=True)
        (folder / staging.INTERMEDIATE / "part.bin").write_bytes(b"part")
        if self._stop:
            raise self._stop
        (folder / "data.bin").write_bytes(b"data")
        return BuildResult("f00d", {"rows": 1})


def make(target: Path, write: Callable[[Path], BuildResult], recipe: Recipe = RECIPE, kept: Manifest | None = None) -> Manifest:
    return build_artifact(target, ArtifactSpec(recipe=recipe, sources={}, find_existing=lambda: kept, write=write))


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_manifest_names_the_packages_that_took_part(target: Path) -> None:
    work = ArtifactSpec(recipe=RECIPE, sources={}, find_existing=lambda: None, write=FakeWriter(), packages=("pytest", "no-such-package"))
    found = build_artifact(target, work).packages
    assert {"python", "numpy", "lmdb", "pytest"} <= found.keys()
    assert "no-such-package" not in found


def test_folders_within_are_flushed_like_files(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []

    def write(folder: Path) -> BuildResult:
        (folder / "index").mkdir()
        (folder / "index" / "data.bin").write_bytes(b"data")
        return BuildResult("f00d", {"rows": 1})

    monkeypatch.setattr(staging, "sync", flushed.append)
    make(target, write)
    assert {staging_path(target) / "index", staging_path(target) / "index" / "data.bin"} <= set(flushed)


def test_a_stopped_build_leaves_its_files_to_the_same_recipe_only(target: Path) -> None:
    for recipe, expected in ((RECIPE, ["intermediate/part.bin"]), (OTHER, [])):
        with pytest.raises(KeyboardInterrupt):
            make(target, FakeWriter(KeyboardInterrupt()))
        assert not target.exists()
        assert staged_bytes(target) > 5
        again = FakeWriter()
        make(target, again, recipe)
        assert again.found == expected
        discard(target)


def test_corrupt_files_are_thrown_away(target: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        make(target, FakeWriter(KeyboardInterrupt()))
    found: list[list[str]] = []

    def write(folder: Path) -> BuildResult:
        writer = FakeWriter()
        outcome = writer(folder)
        found.append(writer.found)
        if writer.found:
            raise StagingCorrupt("a file is corrupt")
        return outcome

    make(target, write)
    assert found == [["intermediate/part.bin"], []]


def test_a_corrupt_input_costs_none_of_the_files(target: Path) -> None:
    with pytest.raises(ArtifactCorrupt, match="the store is corrupt"):
        make(target, FakeWriter(ArtifactCorrupt("the store is corrupt")))
    make(target, again := FakeWriter())
    assert again.found == ["intermediate/part.bin"]


def test_a_sealed_build_that_was_corrupted_later_is_not_published(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(target, FakeWriter(), OTHER)

    def stop(*paths: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(staging, "_publish", stop)
        with pytest.raises(KeyboardInterrupt):
            make(target, FakeWriter())
    (staging_path(target) / "data.bin").write_bytes(b"cut")
    assert make(target, FakeWriter()).files["data.bin"].n_bytes == 4
    assert (target / "data.bin").read_bytes() == b"data"


def test_whether_to_build_is_decided_under_the_lock(target: Path) -> None:
    first = make(target, FakeWriter())

    def find_existing() -> Manifest | None:
        with pytest.raises(LockedError), lock(target):
            pass
        return first

    writer = FakeWriter(AssertionError("nothing is to be written"))
    assert build_artifact(target, ArtifactSpec(recipe=OTHER, sources={}, find_existing=find_existing, write=writer)) == first


@pytest.mark.parametrize("can_exchange", [True, False])
def test_replacing_leaves_one_artefact_with_and_without_exchange(target: Path, can_exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_exchange:
        monkeypatch.setattr(staging, "_exchange", lambda one, other: False)
    make(target, FakeWriter())
    (target / "old.bin").write_bytes(b"old")
    make(target, FakeWriter(), OTHER)
    assert everything(target.parent) == ["one", "one/data.bin", f"one/{MANIFEST}"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device;"),
        (OSError(errno.EMFILE, "Too many open files", "vectors.npy"), "Too many open files: vectors.npy;"),
        (ConnectionError("the node is gone"), "the node is gone;"),
    ],
)
def test_what_the_system_refuses_is_reported_as_what_it_is(target: Path, error: OSError, reason: str) -> None:
    with pytest.raises(StorageError) as raised:
        make(target, FakeWriter(stop=error))
    assert str(raised.value).startswith(f"work on {target} has stopped: {reason} finished parts are kept")
    make(target, writer := FakeWriter())
    assert writer.found == ["intermediate/part.bin"]


def test_bad_input_leaves_what_was_there(target: Path, home: Path) -> None:
    for left in ([], ["things", "things/one", "things/one/data.bin", f"things/one/{MANIFEST}"]):
        with pytest.raises(InputError):
            make(target, FakeWriter(InputError("bad")), OTHER)
        assert [path for path in everything(home) if not path.startswith(".locks")] == left
        make(target, FakeWriter())


def test_a_lock_is_held_by_one_at_a_time_and_outlives_the_folder(target: Path) -> None:
    with lock(target):
        discard(target.parent)
        with pytest.raises(LockedError, match="is being worked on by process"), lock(target):
            pass
    with lock(target):
        pass


def test_discard_takes_files_folders_links_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_text("x")
    (tmp_path / ".folder.old").mkdir()
    for name in ("folder", "link", "file", "nothing"):
        discard(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_held_where_not_even_its_holder_can_be_written(target: Path) -> None:
    with lock(target):
        pass
    with file_limit(0), lock(target), pytest.raises(LockedError, match="is being worked on by another process"), lock(target):
        pass
