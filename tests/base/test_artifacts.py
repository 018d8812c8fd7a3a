"""Builds of artifacts, what they leave behind when they stop, and the manifests of what they have built."""

from __future__ import annotations

import dataclasses
import errno
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conftest import file_limit, with_checksum
from wikidx.base.artifacts import building
from wikidx.base.artifacts.building import ArtifactSpec, BuildResult, build_artifact, discard, lock, staged_bytes, staging_path
from wikidx.base.artifacts.manifest import MANIFEST, Manifest, Part, Recipe, check_fingerprint, read_manifest, verify_files
from wikidx.base.errors import (
    ArtifactCorrupt,
    ArtifactMismatch,
    ArtifactMissing,
    IdxError,
    InputError,
    LockedError,
    StagingCorrupt,
    StorageError,
)

RECIPE = Recipe(kind="thing", format_version=1, parameters={"size": 3}, inputs={"a.txt": "00ff"})
OTHER = dataclasses.replace(RECIPE, parameters={"size": 4})


@pytest.fixture
def target(home: Path) -> Path:
    return home / "things" / "one"


class FakeWriter:
    """A writer of two files, which records those that it finds; it may be stopped behind an intermediate file."""

    def __init__(self, stop: BaseException | None = None) -> None:
        self.found: list[str] = []
        self._stop = stop

    def __call__(self, folder: Path) -> BuildResult:
        self.found = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.bin"))
        files = {"intermediate/part.bin": b"part"} if self._stop else {"data.bin": b"content", "sub/more.bin": b"more"}
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
        if self._stop:
            raise self._stop
        return BuildResult("f00d", {"rows": 1})


def make(
    target: Path,
    write: Callable[[Path], BuildResult] | None = None,
    recipe: Recipe = RECIPE,
    find_existing: Callable[[], Manifest | None] = lambda: None,
    packages: Sequence[str] = (),
) -> Manifest:
    sources = {"a.txt": "/somewhere/a.txt"}
    work = ArtifactSpec(recipe=recipe, sources=sources, find_existing=find_existing, write=write or FakeWriter(), packages=packages)
    return build_artifact(target, work)


def stop(target: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        make(target, FakeWriter(KeyboardInterrupt()))


def read(target: Path, version: int = 1) -> Manifest:
    return read_manifest(target, "thing", version, "idx build one")


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


BUILT = ["one", "one/data.bin", f"one/{MANIFEST}", "one/sub", "one/sub/more.bin"]


def test_what_was_built_is_read_back(target: Path) -> None:
    manifest = make(target, packages=("pytest", "no-such-package"))
    assert everything(target.parent) == BUILT
    assert read(target) == manifest
    assert (manifest.recipe, manifest.fingerprint, manifest.counts) == (RECIPE, "f00d", {"rows": 1})
    assert manifest.sources == {"a.txt": "/somewhere/a.txt"}
    assert {name: record.n_bytes for name, record in manifest.files.items()} == {"data.bin": 7, "sub/more.bin": 4}
    assert manifest.n_bytes == 11
    reports = list[tuple[int, int | None]]()
    assert verify_files(target, manifest, lambda *done: reports.append(done)) == []
    assert reports == [(7, 11), (11, 11)]
    assert {"python", "numpy", "lmdb", "pytest"} <= manifest.packages.keys() - {"no-such-package"} == manifest.packages.keys()
    data = json.loads((target / MANIFEST).read_bytes())
    assert sorted(data) == ["counts", "created", "files", "fingerprint", "packages", "parts", "recipe", "sha256", "sources", "version"]
    assert (data["version"], data["parts"], data["packages"]["python"].count(".")) == (1, [{"folder": "", "n_rows": 1}], 2)


def change_manifest(target: Path, values: dict[str, object], *dropped: str, sealed: bool = True) -> None:
    data = json.loads((target / MANIFEST).read_bytes()) | values
    for name in (*dropped, *["sha256"] * sealed):
        del data[name]
    (target / MANIFEST).write_text(with_checksum(data) if sealed else json.dumps(data))


def test_a_missing_and_a_short_file_are_refused(target: Path) -> None:
    with pytest.raises(ArtifactMissing, match="nothing is built at .*one: run 'idx build one'"):
        read(target)
    make(target)
    (target / "data.bin").write_bytes(b"cont")
    with pytest.raises(ArtifactCorrupt, match=r"data\.bin has 4 bytes instead of 7: run 'idx build one --force'"):
        read(target)
    (target / "data.bin").unlink()
    with pytest.raises(ArtifactCorrupt, match=r"data\.bin is missing"):
        read(target)


@pytest.mark.parametrize(("name", "value"), [("files", {"data.bin": 7}), ("counts", {"rows": 0}), ("recipe", {"kind": 1}), ("more", 1)])
@pytest.mark.parametrize("dropped", [(), ("sha256",)])
def test_a_manifest_that_was_changed_is_refused(target: Path, name: str, value: object, dropped: tuple[str, ...]) -> None:
    make(target)
    change_manifest(target, {name: value}, *dropped, sealed=False)
    with pytest.raises(ArtifactCorrupt, match="it is corrupt: its checksum is another one"):
        read(target)


@pytest.mark.parametrize(("name", "value"), [("version", 2), ("parts", [{"folder": "0"}, {"folder": "1"}]), ("parts", [])])
def test_a_form_of_later_versions_is_refused(target: Path, name: str, value: object) -> None:
    make(target)
    change_manifest(target, {name: value})
    with pytest.raises(ArtifactCorrupt, match=r"cannot be read \(another version of idx wrote it\): run 'idx build one --force'"):
        read(target)


def test_another_version_kind_or_corpus_is_refused_and_both_are_named(target: Path) -> None:
    manifest = make(target)
    with pytest.raises(ArtifactMismatch, match="holds 'thing' in format 1, this version of idx reads 'thing' in format 2"):
        read(target, version=2)
    check_fingerprint(target, manifest, "f00d", "idx build one")
    with pytest.raises(ArtifactMismatch, match=r"other passages \(f00d…\) than the store now holds \(beef…\)"):
        check_fingerprint(target, manifest, "beef", "idx build one")


def test_a_manifest_without_parts_has_one(target: Path) -> None:
    """As those of earlier versions."""
    made = make(target)
    change_manifest(target, {}, "version", "parts")
    assert read(target) == dataclasses.replace(made, parts=(Part(),))


def test_folders_within_are_flushed_like_files(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(building, "sync", flushed.append)
    make(target)
    assert {staging_path(target) / "sub", staging_path(target) / "sub" / "more.bin"} <= set(flushed)


def test_a_stopped_build_leaves_its_files_to_the_same_recipe_only(target: Path) -> None:
    for recipe, expected in ((RECIPE, ["intermediate/part.bin"]), (OTHER, [])):
        stop(target)
        assert not target.exists()
        assert staged_bytes(target) > 5
        make(target, again := FakeWriter(), recipe)
        assert (again.found, everything(target.parent)) == (expected, BUILT)
        discard(target)


def test_corrupt_files_are_thrown_away(target: Path) -> None:
    stop(target)
    found: list[list[str]] = []

    def write(folder: Path) -> BuildResult:
        outcome = (writer := FakeWriter())(folder)
        found.append(writer.found)
        if writer.found:
            raise StagingCorrupt("a file is corrupt")
        return outcome

    make(target, write)
    assert found == [["intermediate/part.bin"], []]


def test_a_sealed_build_that_was_corrupted_later_is_not_published(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(target, recipe=OTHER)
    with monkeypatch.context() as patch:
        patch.setattr(building, "_publish", lambda staging, target: FakeWriter(KeyboardInterrupt())(staging))
        with pytest.raises(KeyboardInterrupt):
            make(target)
    (staging_path(target) / "data.bin").write_bytes(b"cut")
    assert make(target).files["data.bin"].n_bytes == 7
    assert (target / "data.bin").read_bytes() == b"content"


def test_whether_to_build_is_decided_under_the_lock(target: Path) -> None:
    first = make(target)

    def find_existing() -> Manifest | None:
        with pytest.raises(LockedError), lock(target):
            pass
        return first

    assert make(target, FakeWriter(AssertionError("nothing is to be written")), OTHER, find_existing) == first


@pytest.mark.parametrize("can_exchange", [True, False])
def test_replacing_leaves_one_artefact_with_and_without_exchange(target: Path, can_exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_exchange:
        monkeypatch.setattr(building, "_exchange", lambda one, other: False)
    make(target)
    (target / "old.bin").write_bytes(b"old")
    make(target, recipe=OTHER)
    assert everything(target.parent) == BUILT


@pytest.mark.parametrize(
    ("error", "told", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), StorageError, "No space left on device;"),
        (OSError(errno.EMFILE, "Too many open files", "vectors.npy"), StorageError, "Too many open files: vectors.npy;"),
        (ConnectionError("the node is gone"), StorageError, "the node is gone;"),
        (ArtifactCorrupt("the store is corrupt"), ArtifactCorrupt, ""),
    ],
)
def test_what_stops_a_build_is_reported_as_what_it_is_and_costs_no_files(
    target: Path, error: Exception, told: type[IdxError], reason: str
) -> None:
    with pytest.raises(told) as raised:
        make(target, FakeWriter(error))
    whole = f"work on {target} has stopped: {reason} finished parts are kept" if reason else str(error)
    assert str(raised.value).startswith(whole)
    make(target, writer := FakeWriter())
    assert writer.found == ["intermediate/part.bin"]


def test_bad_input_leaves_what_was_there(target: Path, home: Path) -> None:
    for left in ([], ["things", *(f"things/{name}" for name in BUILT)]):
        with pytest.raises(InputError):
            make(target, FakeWriter(InputError("bad")), OTHER)
        assert [path for path in everything(home) if not path.startswith(".locks")] == left
        make(target)


def test_a_lock_is_held_by_one_at_a_time_and_outlives_the_folder(target: Path) -> None:
    with lock(target):
        discard(target.parent)
        with pytest.raises(LockedError, match="is being worked on by process"), lock(target):
            pass
    with file_limit(0), lock(target), pytest.raises(LockedError, match="is being worked on by another process"), lock(target):
        pass  # where not even its holder can be written


def test_a_lock_names_the_command_without_its_secrets(target: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["idx", "run", "rag", "--api-key", "geheim", "--url", "http://u:geheim@host/v1"])
    with lock(target), pytest.raises(LockedError, match="as 'idx run rag --api-key … --url http://host/v1'"), lock(target):
        pass
    assert not [file for file in (home / ".locks").iterdir() if b"geheim" in file.read_bytes()]


def test_discard_takes_files_folders_links_and_nothing(tmp_path: Path) -> None:
    for folder in ("folder", "elsewhere", ".folder.old"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_text("x")
    for name in ("folder", "link", "file", "nothing"):
        discard(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
