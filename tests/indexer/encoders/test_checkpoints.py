"""Lookup of a checkpoint's files, and their download from a server on this machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.indexer.encoders import tiny
from tests.indexer.encoders.folders import with_checkpoint
from tests.indexer.encoders.test_loading import in_shards
from tests.loopback import serving
from wikidx.base.artifacts.building import lock
from wikidx.base.artifacts.durable import file_sha256
from wikidx.base.errors import DownloadError, InputError, LockedError
from wikidx.indexer.encoders import contriever, dpr, gtr, simlm
from wikidx.indexer.encoders.spec import EncoderSpec, changed_weights, weight_checksums
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.networks import checkpoints

COMMIT = "abe8c1493371369031bcb1e02acb754cf4e162fa"
REPOSITORY = f"facebook/contriever-msmarco/resolve/{COMMIT}"
QUERIES = ["the river", "nile"]


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide what Hugging Face's libraries have on this machine."""
    cache = tmp_path / "cache"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(cache), raising=False)
    return cache


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server of the files in this folder."""
    (tmp_path / "hub").mkdir()
    with serving(tmp_path / "hub") as address:
        monkeypatch.setenv("IDX_MIRROR", address)
        yield tmp_path / "hub"


def test_a_checkpoint_is_downloaded_once_and_then_used_offline(hub: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.save_bert(hub / REPOSITORY)
    folder = contriever.SPEC.folder("query")
    assert folder == home / "checkpoints" / "facebook" / "contriever-msmarco" / COMMIT
    monkeypatch.setenv("IDX_MIRROR", "http://127.0.0.1:1")
    expected = TransformerEncoder(with_checkpoint(contriever.SPEC, hub / REPOSITORY)).encode_queries(QUERIES)
    np.testing.assert_array_equal(TransformerEncoder(contriever.SPEC).encode_queries(QUERIES), expected)


def test_of_alternative_files_the_one_that_the_repository_has_is_downloaded(hub: Path) -> None:
    tiny.save_bert(hub / REPOSITORY)
    (hub / REPOSITORY / "tokenizer.json").unlink()
    folder = contriever.SPEC.folder("query")
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["config.json", "model.safetensors", "vocab.txt"]


def test_all_shards_are_downloaded_also_those_that_an_interrupted_download_lacks(hub: Path) -> None:
    in_shards(tiny.save_bert(hub / REPOSITORY))
    folder = contriever.SPEC.folder("query")
    shards = {path.name for path in folder.glob("model-*.safetensors")}
    assert len(shards) == 3
    (folder / "model-1-of-3.safetensors").unlink()
    assert contriever.SPEC.folder("query") == folder
    assert {path.name for path in folder.glob("model-*.safetensors")} == shards
    assert TransformerEncoder(contriever.SPEC).dim == 24


def test_a_projection_is_downloaded_into_its_folder(hub: Path) -> None:
    checkpoint = gtr.SPEC.query_checkpoint
    assert isinstance(checkpoint, checkpoints.HubCheckpoint)
    tiny.add_modules(tiny.save_t5(hub / checkpoint.repository / "resolve" / checkpoint.revision), "mean", dim=10)
    assert TransformerEncoder(gtr.SPEC).dim == 10


def test_both_sides_of_dpr_have_repositories(hub: Path, tmp_path: Path) -> None:
    tiny.save_dpr(tmp_path / "dpr")
    for side, checkpoint in (("question_encoder", dpr.SPEC.query_checkpoint), ("ctx_encoder", dpr.SPEC.passage_checkpoint)):
        assert isinstance(checkpoint, checkpoints.HubCheckpoint)
        shutil.copytree(tmp_path / "dpr" / side, hub / checkpoint.repository / "resolve" / checkpoint.revision)
    local = TransformerEncoder(with_checkpoint(dpr.SPEC, tmp_path / "dpr"))
    np.testing.assert_array_equal(TransformerEncoder(dpr.SPEC).encode_queries(QUERIES), local.encode_queries(QUERIES))
    assert weight_checksums(dpr.SPEC) == weight_checksums(with_checkpoint(dpr.SPEC, tmp_path / "dpr"))
    assert len(weight_checksums(dpr.SPEC)) == 6


def test_what_cannot_be_downloaded_is_listed_with_the_place_for_it(hub: Path, home: Path) -> None:
    folder = home / "checkpoints" / "facebook" / "contriever-msmarco" / COMMIT
    wanted = (
        r"put config\.json, tokenizer\.json \(or vocab\.txt\), model\.safetensors \(or pytorch_model\.bin\) of https://huggingface\.co/"
    )
    with pytest.raises(DownloadError, match=f"'contriever' is not on this machine .*404.*{wanted}.* into {folder}$") as caught:
        TransformerEncoder(contriever.SPEC)
    assert "\n" not in str(caught.value)
    shutil.copytree(tiny.save_bert(hub / "elsewhere"), folder, dirs_exist_ok=True)
    assert TransformerEncoder(contriever.SPEC).dim == 24


def test_no_network_is_reported_as_well(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the library waits before it tries again
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("IDX_MIRROR", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(DownloadError, match=r"not on this machine and cannot be downloaded \(.*refused.*put config\.json"):
            contriever.SPEC.folder("passage")


def test_what_another_process_is_downloading_is_not_downloaded_twice(hub: Path) -> None:
    assert isinstance(contriever.SPEC.query_checkpoint, checkpoints.HubCheckpoint)
    with lock(contriever.SPEC.query_checkpoint.folder), pytest.raises(LockedError, match="is being worked on"):
        contriever.SPEC.folder("passage")


def test_what_hugging_faces_libraries_have_downloaded_is_used(no_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_MIRROR", "http://127.0.0.1:1")
    repository = no_cache / "models--facebook--contriever-msmarco"
    tiny.save_bert(repository / "snapshots" / COMMIT)
    assert contriever.SPEC.folder("query").is_relative_to(repository)
    main = no_cache / "models--intfloat--simlm-base-msmarco-finetuned"
    tiny.save_bert(main / "snapshots" / "1234")
    (main / "refs").mkdir()
    (main / "refs" / "main").write_text("1234")
    assert simlm.SPEC.folder("query") == main / "snapshots" / "1234"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (contriever.SPEC, r"mine is no checkpoint for 'contriever': there is no model\.safetensors \(or pytorch_model\.bin\)"),
        (dpr.SPEC, "there is no directory .*mine/question_encoder with a checkpoint for 'dpr'"),
    ],
)
def test_a_directory_of_the_users_must_have_all_files(spec: EncoderSpec, words: str, tmp_path: Path) -> None:
    (tiny.save_bert(tmp_path / "mine") / "model.safetensors").unlink()
    with pytest.raises(InputError, match=words):
        with_checkpoint(spec, tmp_path / "mine").folder("query")


def test_weights_are_distinguished_by_their_files(tmp_path: Path) -> None:
    one, other = tiny.save_bert(tmp_path / "one"), tiny.save_bert(tmp_path / "other", seed=1)
    first, second = (weight_checksums(with_checkpoint(contriever.SPEC, folder)) for folder in (one, other))
    assert first == {f"passage {name}": file_sha256(one / name) for name in ("config.json", "tokenizer.json", "model.safetensors")}
    assert [name for name in first if first[name] != second[name]] == ["passage model.safetensors"]
    assert json.dumps(first)


def _age(folder: Path) -> None:
    """Set the times of files back to when they cannot be changing any more."""
    for path in folder.iterdir():
        os.utime(path, (1e9, 1e9))


def test_every_shard_of_weights_is_hashed(tmp_path: Path) -> None:
    in_shards(tiny.save_bert(tmp_path))
    spec, names = with_checkpoint(contriever.SPEC, tmp_path), [f"model-{number}-of-3.safetensors" for number in range(3)]
    recorded = weight_checksums(spec)
    assert [name for name in recorded if "model-" in name] == [f"passage {name}" for name in names]
    shard = tmp_path / names[2]
    shard.write_bytes(shard.read_bytes()[:-4] + b"\0\1\2\3")
    assert changed_weights(spec, recorded) == [f"passage {names[2]}"]


def test_a_file_is_hashed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny.save_bert(tmp_path / "one")
    spec, hashed = with_checkpoint(contriever.SPEC, folder), list[str]()

    def noted(path: Path) -> str:
        hashed.append(path.name)
        return file_sha256(path)

    monkeypatch.setattr(checkpoints, "file_sha256", noted)
    weight_checksums(spec)
    weight_checksums(spec)
    assert len(hashed) == 6  # what has just been written may change again within the same tick of the clock
    _age(folder)
    recorded = weight_checksums(spec)
    hashed.clear()
    assert weight_checksums(spec) == recorded
    assert hashed == []
    tiny.save_bert(folder, seed=1)
    _age(folder)
    os.utime(folder / "model.safetensors", (1e9, 1e9 + 1))
    assert changed_weights(spec, recorded) == ["passage model.safetensors"]
    assert weight_checksums(spec) != recorded


def test_a_home_that_cannot_be_written_to_hinders_no_check(home: Path, tmp_path: Path) -> None:
    folder = tiny.save_bert(tmp_path / "one")
    _age(folder)
    home.mkdir(parents=True, exist_ok=True)
    (home / "checkpoints").write_text("no folder")
    assert len(weight_checksums(with_checkpoint(contriever.SPEC, folder))) == 3
