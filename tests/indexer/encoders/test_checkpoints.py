"""Lookup of a checkpoint's files, and their download from a server on this machine."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.indexer.encoders import tiny
from tests.indexer.encoders.folders import with_checkpoint
from tests.indexer.encoders.test_loading import in_shards, save_gtr
from tests.loopback import serving
from wikidx.base.artifacts.building import lock
from wikidx.base.artifacts.durable import file_sha256
from wikidx.base.errors import DownloadError, InputError, LockedError
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.indexer.encoders.spec import EncoderSpec, Side, changed_weights, weight_checksums
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.networks import checkpoints
from wikidx.indexer.networks.checkpoints import HubCheckpoint

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


@pytest.mark.parametrize(
    ("spec", "save"), [(ENCODERS["contriever"], tiny.save_bert), (ENCODERS["gtr"], save_gtr), (ENCODERS["dpr"], tiny.save_dpr)]
)
def test_a_checkpoint_is_downloaded_and_used_offline(
    spec: EncoderSpec, save: Callable[[Path], Path], hub: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = with_checkpoint(spec, save(tmp_path / "local"))
    if spec is ENCODERS["contriever"]:
        (tmp_path / "local" / "tokenizer.json").unlink()  # of alternative files, the one that is there is downloaded
    sides: tuple[Side, ...] = ("query", "passage")
    for side in sides:
        checkpoint = spec.checkpoint(side)
        assert isinstance(checkpoint, HubCheckpoint)
        shutil.copytree(local.folder(side), hub / checkpoint.repository / "resolve" / checkpoint.revision, dirs_exist_ok=True)
        assert spec.folder(side) == home / "checkpoints" / checkpoint.repository / checkpoint.revision
    monkeypatch.setenv("IDX_MIRROR", "http://127.0.0.1:1")
    np.testing.assert_array_equal(TransformerEncoder(spec).encode_queries(QUERIES), TransformerEncoder(local).encode_queries(QUERIES))
    assert weight_checksums(spec) == weight_checksums(local)
    assert len(weight_checksums(spec)) == {"contriever": 3, "gtr": 5, "dpr": 6}[spec.name]


def test_all_shards_are_downloaded_also_later(hub: Path) -> None:
    in_shards(tiny.save_bert(hub / REPOSITORY))
    folder = ENCODERS["contriever"].folder("query")
    shards = {path.name for path in folder.glob("model-*.safetensors")}
    assert len(shards) == 3
    (folder / "model-1-of-3.safetensors").unlink()
    assert ENCODERS["contriever"].folder("query") == folder
    assert {path.name for path in folder.glob("model-*.safetensors")} == shards
    assert TransformerEncoder(ENCODERS["contriever"]).dim == 24


def test_what_cannot_be_downloaded_is_listed_with_the_place_for_it(hub: Path, home: Path) -> None:
    folder = home / "checkpoints" / "facebook" / "contriever-msmarco" / COMMIT
    wanted = r"put config\.json, tokenizer\.json \(or vocab\.txt\), model\.safetensors \(or pytorch_model\.bin\) of https://.*\.co/"
    with pytest.raises(DownloadError, match=f"'contriever' is not on this machine .*404.*{wanted}.* into {folder}$") as caught:
        TransformerEncoder(ENCODERS["contriever"])
    assert "\n" not in str(caught.value)
    shutil.copytree(tiny.save_bert(hub / "elsewhere"), folder, dirs_exist_ok=True)
    assert TransformerEncoder(ENCODERS["contriever"]).dim == 24


def test_no_network_is_reported_as_well(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the library waits before it tries again
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("IDX_MIRROR", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(DownloadError, match=r"not on this machine and cannot be downloaded \(.*refused.*put config\.json"):
            ENCODERS["contriever"].folder("passage")


def test_what_another_process_is_downloading_is_not_downloaded_twice(hub: Path) -> None:
    assert isinstance(ENCODERS["contriever"].query_checkpoint, HubCheckpoint)
    with lock(ENCODERS["contriever"].query_checkpoint.folder), pytest.raises(LockedError, match="is being worked on"):
        ENCODERS["contriever"].folder("passage")


def test_what_the_libraries_have_downloaded_is_used(no_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_MIRROR", "http://127.0.0.1:1")
    repository = no_cache / "models--facebook--contriever-msmarco"
    tiny.save_bert(repository / "snapshots" / COMMIT)
    assert ENCODERS["contriever"].folder("query").is_relative_to(repository)
    main = no_cache / "models--intfloat--simlm-base-msmarco-finetuned"
    tiny.save_bert(main / "snapshots" / "1234")
    (main / "refs").mkdir()
    (main / "refs" / "main").write_text("1234")
    assert ENCODERS["simlm"].folder("query") == main / "snapshots" / "1234"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (ENCODERS["contriever"], r"mine is no checkpoint for 'contriever': there is no model\.safetensors \(or pytorch_model\.bin\)"),
        (ENCODERS["dpr"], "there is no directory .*mine/question_encoder with a checkpoint for 'dpr'"),
    ],
)
def test_a_directory_must_have_all_files(spec: EncoderSpec, words: str, tmp_path: Path) -> None:
    (tiny.save_bert(tmp_path / "mine") / "model.safetensors").unlink()
    with pytest.raises(InputError, match=words):
        with_checkpoint(spec, tmp_path / "mine").folder("query")


def test_every_file_of_the_weights_is_hashed(tmp_path: Path) -> None:
    in_shards(tiny.save_bert(tmp_path))
    spec, names = with_checkpoint(ENCODERS["contriever"], tmp_path), [f"model-{number}-of-3.safetensors" for number in range(3)]
    recorded = weight_checksums(spec)
    files = ("config.json", "tokenizer.json", "model.safetensors.index.json", *names)
    assert recorded == {f"passage {name}": file_sha256(tmp_path / name) for name in files}
    shard = tmp_path / names[2]
    shard.write_bytes(shard.read_bytes()[:-4] + b"\0\1\2\3")
    assert changed_weights(spec, recorded) == [f"passage {names[2]}"]


def _age(folder: Path) -> None:
    """Set the times of files back to when they cannot be changing any more."""
    for path in folder.iterdir():
        os.utime(path, (1e9, 1e9))


def test_a_file_is_hashed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny.save_bert(tmp_path / "one")
    spec, hashed = with_checkpoint(ENCODERS["contriever"], folder), list[str]()

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
    assert len(weight_checksums(with_checkpoint(ENCODERS["contriever"], folder))) == 3
