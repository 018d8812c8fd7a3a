from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpora.artifacts import MANIFEST, Manifest, Recipe, building, check_fingerprint, commit, discard, read_manifest, verify_files
from corpora.errors import ArtifactDamaged, ArtifactMismatch, ArtifactMissing

RECIPE = Recipe(kind="thing", format_version=1, parameters={"size": 3}, inputs={"a.txt": "00ff"})


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "things" / "one"


def make(target: Path, content: bytes = b"content", recipe: Recipe = RECIPE) -> Manifest:
    with building(target, recipe) as staging:
        (staging / "sub").mkdir(exist_ok=True)
        (staging / "data.bin").write_bytes(content)
        (staging / "sub" / "more.bin").write_bytes(b"more")
        return commit(staging, target, recipe, "f00d", {"rows": 1})


def read(target: Path, version: int = 1) -> Manifest:
    return read_manifest(target, "thing", version, "'idx build one'")


def test_what_was_committed_is_read_back(target: Path) -> None:
    manifest = make(target)
    assert read(target) == manifest
    assert (manifest.recipe, manifest.fingerprint, manifest.counts) == (RECIPE, "f00d", {"rows": 1})
    assert {name: record.n_bytes for name, record in manifest.files.items()} == {"data.bin": 7, "sub/more.bin": 4}
    assert verify_files(target, manifest) == []


def test_nothing_appears_before_the_commit(target: Path) -> None:
    with building(target, RECIPE) as staging:
        (staging / "data.bin").write_bytes(b"x")
    assert not target.exists()
    with pytest.raises(ArtifactMissing, match="nothing is built at .*one: run 'idx build one'"):
        read(target)


def test_finished_pieces_wait_for_the_same_recipe_only(target: Path) -> None:
    with building(target, RECIPE) as staging:
        (staging / "piece").write_bytes(b"x")
    with building(target, RECIPE) as staging:
        assert (staging / "piece").read_bytes() == b"x"
    other = Recipe(kind="thing", format_version=1, parameters={"size": 4}, inputs={"a.txt": "00ff"})
    with building(target, other) as staging:
        assert not (staging / "piece").exists()


def test_a_commit_replaces_what_was_there_whole(target: Path) -> None:
    make(target)
    with building(target, RECIPE) as staging:
        (staging / "other.bin").write_bytes(b"new")
        commit(staging, target, RECIPE, "beef", {"rows": 2})
    assert sorted(path.name for path in target.iterdir()) == [MANIFEST, "other.bin"]
    assert [path.name for path in target.parent.iterdir() if path.name != ".one.lock"] == ["one"]


def test_a_missing_and_a_short_file_are_refused(target: Path) -> None:
    make(target)
    (target / "data.bin").write_bytes(b"cont")
    with pytest.raises(ArtifactDamaged, match=r"data\.bin has 4 bytes instead of 7: run 'idx build one' --force"):
        read(target)
    (target / "data.bin").unlink()
    with pytest.raises(ArtifactDamaged, match=r"data\.bin is missing"):
        read(target)


def test_a_flipped_bit_is_found_by_verifying(target: Path) -> None:
    manifest = make(target)
    (target / "sub" / "more.bin").write_bytes(b"mose")
    assert read(target) == manifest
    assert [problem.split(": sha256")[0] for problem in verify_files(target, manifest)] == [f"{target}/sub/more.bin is damaged"]


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"recipe": {}}', '{"recipe": {"kind": "thing", "bogus": 1}}'])
def test_a_broken_manifest_is_refused(target: Path, content: str) -> None:
    make(target)
    (target / MANIFEST).write_text(content)
    with pytest.raises(ArtifactDamaged, match=r"manifest\.json cannot be read"):
        read(target)


def test_another_version_or_kind_is_refused_and_both_are_named(target: Path) -> None:
    make(target)
    with pytest.raises(ArtifactMismatch, match="holds 'thing' in format 1, this version of idx reads 'thing' in format 2"):
        read(target, version=2)


def test_another_corpus_is_refused_and_both_are_named(target: Path) -> None:
    manifest = make(target)
    check_fingerprint(target, manifest, "f00d", "'idx build one'")
    with pytest.raises(ArtifactMismatch, match=r"other passages \(f00d…\) than the store now holds \(beef…\)"):
        check_fingerprint(target, manifest, "beef", "'idx build one'")


def test_the_manifest_is_plain_json(target: Path) -> None:
    make(target)
    data = json.loads((target / MANIFEST).read_bytes())
    assert sorted(data) == ["counts", "created", "files", "fingerprint", "packages", "recipe"]
    assert data["packages"]["python"].count(".") == 2


def test_discard_takes_files_and_folders_and_nothing(tmp_path: Path, target: Path) -> None:
    make(target)
    discard(target)
    assert not target.exists()
    file = tmp_path / "file"
    file.write_text("x")
    discard(file)
    discard(file)
    assert not file.exists()
