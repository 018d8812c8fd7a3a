from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.conftest import with_checksum
from wikidx.base.artifacts.building import ArtifactSpec, BuildResult, build_artifact
from wikidx.base.artifacts.manifest import MANIFEST, Manifest, Part, Recipe, check_fingerprint, read_manifest, verify_files
from wikidx.base.errors import ArtifactCorrupt, ArtifactMismatch, ArtifactMissing

RECIPE = Recipe(kind="thing", format_version=1, parameters={"size": 3}, inputs={"a.txt": "00ff"})


@pytest.fixture
def target(home: Path) -> Path:
    return home / "things" / "one"


def make(target: Path) -> Manifest:
    def write(staging: Path) -> BuildResult:
        (staging / "sub").mkdir()
        (staging / "data.bin").write_bytes(b"content")
        (staging / "sub" / "more.bin").write_bytes(b"more")
        return BuildResult("f00d", {"rows": 1})

    work = ArtifactSpec(recipe=RECIPE, sources={"a.txt": "/somewhere/a.txt"}, find_existing=lambda: None, write=write)
    return build_artifact(target, work)


def read(target: Path, version: int = 1) -> Manifest:
    return read_manifest(target, "thing", version, "idx build one")


def test_what_was_built_is_read_back(target: Path) -> None:
    manifest = make(target)
    assert read(target) == manifest
    assert (manifest.recipe, manifest.fingerprint, manifest.counts) == (RECIPE, "f00d", {"rows": 1})
    assert manifest.sources == {"a.txt": "/somewhere/a.txt"}
    assert {name: record.n_bytes for name, record in manifest.files.items()} == {"data.bin": 7, "sub/more.bin": 4}
    assert manifest.n_bytes == 11
    assert verify_files(target, manifest) == []


def test_what_is_not_there_says_what_to_run(target: Path) -> None:
    with pytest.raises(ArtifactMissing, match="nothing is built at .*one: run 'idx build one'"):
        read(target)


def test_a_missing_and_a_short_file_are_refused(target: Path) -> None:
    make(target)
    (target / "data.bin").write_bytes(b"cont")
    with pytest.raises(ArtifactCorrupt, match=r"data\.bin has 4 bytes instead of 7: run 'idx build one --force'"):
        read(target)
    (target / "data.bin").unlink()
    with pytest.raises(ArtifactCorrupt, match=r"data\.bin is missing"):
        read(target)


def test_a_flipped_bit_is_found_by_verifying(target: Path) -> None:
    manifest = make(target)
    (target / "sub" / "more.bin").write_bytes(b"mose")
    assert read(target) == manifest
    reports: list[tuple[int, int | None]] = []
    problems = verify_files(target, manifest, lambda done, total: reports.append((done, total)))
    assert [problem.split(": sha256")[0] for problem in problems] == [f"{target}/sub/more.bin is corrupt"]
    assert reports == [(7, 11), (11, 11)]


@pytest.mark.parametrize(("part", "value"), [("files", {"data.bin": 7}), ("counts", {"rows": 0}), ("recipe", {"kind": 1}), ("more", 1)])
@pytest.mark.parametrize("has_checksum", [True, False])
def test_a_manifest_that_was_changed_is_refused(target: Path, part: str, value: object, has_checksum: bool) -> None:
    make(target)
    data = json.loads((target / MANIFEST).read_bytes()) | {part: value}
    if not has_checksum:
        del data["sha256"]
    (target / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(ArtifactCorrupt, match="it is corrupt: its checksum is another one"):
        read(target)


def test_another_version_or_kind_is_refused_and_both_are_named(target: Path) -> None:
    make(target)
    with pytest.raises(ArtifactMismatch, match="holds 'thing' in format 1, this version of idx reads 'thing' in format 2"):
        read(target, version=2)


@pytest.mark.parametrize(("name", "value"), [("version", 2), ("parts", [{"folder": "0"}, {"folder": "1"}]), ("parts", [])])
def test_a_form_of_later_versions_is_refused(target: Path, name: str, value: object) -> None:
    make(target)
    data = json.loads((target / MANIFEST).read_bytes()) | {name: value}
    del data["sha256"]
    (target / MANIFEST).write_text(with_checksum(data))
    with pytest.raises(ArtifactCorrupt, match=r"cannot be read \(another version of idx wrote it\): run 'idx build one --force'"):
        read(target)


def test_a_manifest_without_parts_has_one(target: Path) -> None:
    """As those of earlier versions."""
    made = make(target)
    data = json.loads((target / MANIFEST).read_bytes())
    for name in ("version", "parts", "sha256"):
        del data[name]
    (target / MANIFEST).write_text(with_checksum(data))
    assert read(target) == dataclasses.replace(made, parts=(Part(),))


def test_another_corpus_is_refused_and_both_are_named(target: Path) -> None:
    manifest = make(target)
    check_fingerprint(target, manifest, "f00d", "idx build one")
    with pytest.raises(ArtifactMismatch, match=r"other passages \(f00d…\) than the store now holds \(beef…\)"):
        check_fingerprint(target, manifest, "beef", "idx build one")


def test_the_manifest_is_plain_json(target: Path) -> None:
    make(target)
    data = json.loads((target / MANIFEST).read_bytes())
    assert sorted(data) == ["counts", "created", "files", "fingerprint", "packages", "parts", "recipe", "sha256", "sources", "version"]
    assert (data["version"], data["parts"]) == (1, [{"folder": "", "n_rows": 1}])
    assert data["packages"]["python"].count(".") == 2
