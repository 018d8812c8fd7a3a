"""Files exchanged by fsspec: whole or not at all, checked, and asked for again where a store refuses for a while."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from wikidx.corpora.errors import ArtifactDamaged, InputError, MissingExtraError, StorageError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.embedding.cluster.exchange import Exchange
from wikidx.indexer.embedding.cluster.places import Exchanged, SharedHome, exchanged, read_and_write

pytest.importorskip("fsspec", reason="needs the extra 'ray'")

SOON = (0.001, 0.001)


class Throttle:
    """Lets requests through, but for so many that come next."""

    def __init__(self) -> None:
        self.n_refused = 0
        self.refusals: dict[str, int] = {}
        self.refusal: Exception = OSError("SlowDown: please reduce your request rate")

    def ask(self, what: str) -> None:
        if self.refusals.get(what, 0) > 0:
            self.refusals[what] -= 1
            self.n_refused += 1
            raise self.refusal


@pytest.fixture
def throttle() -> Iterator[Throttle]:
    """Register the file system ``throttled://``: that of this machine, behind an object store's limits."""
    import fsspec
    from fsspec.implementations.local import LocalFileSystem
    from fsspec.registry import _registry

    limits = Throttle()

    class Throttled(LocalFileSystem):  # type: ignore[misc] # fsspec has no types
        protocol = ("throttled",)
        cachable = False

        def put_file(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - handed on
            limits.ask("put")
            super().put_file(*arguments, **options)

        def get_file(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - handed on
            limits.ask("get")
            super().get_file(*arguments, **options)

        def mv(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - handed on
            limits.ask("mv")
            super().mv(*arguments, **options)

        def info(self, path: str, **options: Any) -> Any:  # noqa: ANN401 - handed on
            limits.ask("info")
            return super().info(path, **options)

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return path.removeprefix("throttled://")

    fsspec.register_implementation("throttled", Throttled, clobber=True)
    yield limits
    _registry.pop("throttled")


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.bin"
    path.write_bytes(b"0123456789" * 1000)
    return path


def test_files_go_and_come_back(tmp_path: Path, source: Path) -> None:
    exchange = Exchange(f"file://{tmp_path}/there")
    assert exchange.names("folder") == []
    assert exchange.size("folder/a.bin") is None
    exchange.put(source, "folder/a.bin")
    exchange.put(source, "folder/a.bin")  # again: it is replaced
    assert exchange.names("folder") == ["a.bin"]
    assert exchange.size("folder/a.bin") == 10_000
    assert exchange.read("folder/a.bin") == source.read_bytes()
    exchange.get("folder/a.bin", tmp_path / "b.bin", sha256_of(source.read_bytes()))
    assert (tmp_path / "b.bin").read_bytes() == source.read_bytes()
    exchange.remove("folder/a.bin")
    exchange.remove("folder/a.bin")
    assert exchange.names("folder") == []


def test_a_file_is_there_under_its_name_only_when_it_is_whole(tmp_path: Path, source: Path, throttle: Throttle) -> None:
    exchange = Exchange(f"throttled://{tmp_path}/there", pauses_s=())
    throttle.refusals = {"mv": 1}
    with pytest.raises(StorageError):
        exchange.put(source, "folder/a.bin")
    (unfinished,) = exchange.names("folder")
    assert unfinished.startswith(".a.bin.")


def test_a_damaged_file_is_refused_and_not_kept(tmp_path: Path, source: Path) -> None:
    exchange = Exchange(f"file://{tmp_path}/there")
    exchange.put(source, "a.bin")
    (tmp_path / "there" / "a.bin").write_bytes(b"x" * 10_000)
    with pytest.raises(ArtifactDamaged, match=r"/there/a\.bin is damaged: sha256 [0-9a-f]{12}… instead of [0-9a-f]{12}…"):
        exchange.get("a.bin", tmp_path / "b.bin", sha256_of(source.read_bytes()))
    assert not list(tmp_path.glob("*b.bin*"))


@pytest.mark.parametrize("request_", ["put", "mv", "get", "info"])
def test_a_throttled_request_is_made_again(tmp_path: Path, source: Path, throttle: Throttle, request_: str) -> None:
    exchange = Exchange(f"throttled://{tmp_path}/there", pauses_s=SOON)
    throttle.refusals = {request_: len(SOON)}
    exchange.put(source, "a.bin")
    assert exchange.size("a.bin") == 10_000
    exchange.get("a.bin", tmp_path / "b.bin", sha256_of(source.read_bytes()))
    assert (tmp_path / "b.bin").read_bytes() == source.read_bytes()
    assert throttle.n_refused == len(SOON)


def test_what_stays_throttled_is_an_error(tmp_path: Path, source: Path, throttle: Throttle) -> None:
    exchange = Exchange(f"throttled://{tmp_path}/there", pauses_s=SOON)
    throttle.refusals = {"put": 100}
    with pytest.raises(StorageError, match=r"cannot write a\.bin to throttled://.*: SlowDown: .*, 3 times: it may be throttled"):
        exchange.put(source, "a.bin")
    assert throttle.n_refused == 3


def test_what_is_forbidden_is_not_asked_for_again(tmp_path: Path, source: Path, throttle: Throttle) -> None:
    exchange = Exchange(f"throttled://{tmp_path}/there", pauses_s=SOON)
    throttle.refusals, throttle.refusal = {"put": 100}, PermissionError("Access Denied")
    with pytest.raises(StorageError, match="cannot write .*: Access Denied: check the address"):
        exchange.put(source, "a.bin")
    assert throttle.n_refused == 1
    with pytest.raises(StorageError, match=r"cannot read absent\.bin from"):
        exchange.read("absent.bin")


def test_a_full_disk_is_not_taken_for_throttling(tmp_path: Path, source: Path, throttle: Throttle) -> None:
    exchange = Exchange(f"throttled://{tmp_path}/there", pauses_s=SOON)
    throttle.refusals, throttle.refusal = {"put": 100}, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(StorageError, match=r"cannot write a\.bin to .*No space left on device: a disk is full"):
        exchange.put(source, "a.bin")
    assert throttle.n_refused == 1


def test_a_node_that_may_only_read_an_exchange_is_found(tmp_path: Path, source: Path, throttle: Throttle) -> None:
    url = f"throttled://{tmp_path}/there"
    exchange = Exchange(url)
    exchange.put(source, ".shared-token")
    assert read_and_write(url, ".shared-token") == source.read_text()
    assert exchange.names("") == [".shared-token"]
    throttle.refusals, throttle.refusal = {"put": 1}, PermissionError("Access Denied")
    with pytest.raises(StorageError, match=r"cannot write \.shared-token\.[0-9a-f]{8} to throttled://.*: Access Denied: check the address"):
        read_and_write(url, ".shared-token")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://x", "machines cannot exchange files by 'memory'"),
        ("https://example.org/x", "machines cannot exchange files by 'https'"),
        ("nothing://x", "cannot be opened"),
        ("", "--exchange '' is no address"),
    ],
)
def test_urls_that_no_machines_share_are_refused(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Exchange(url)


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"wikidx\[ray\]"):
        Exchange("file:///tmp")


def test_a_node_has_its_own_copy_of_the_store(
    tmp_path: Path, home: Path, build: Callable[..., PassageStore], made_passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = build(made_passages)
    place = exchanged(f"file://{tmp_path}/there", store, "job")
    again = exchanged(f"file://{tmp_path}/there", store, "job")  # nothing is put there twice
    assert again == place
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "node"))
    found = place.open()
    assert found.folder.is_relative_to(tmp_path / "node")
    assert list(found.read()) == made_passages
    data = found.folder / "text_keys.u64"
    before = data.stat().st_mtime_ns
    assert place.open().fingerprint == store.fingerprint
    assert data.stat().st_mtime_ns == before


def test_a_store_that_is_damaged_on_the_way_is_refused(
    tmp_path: Path, build: Callable[..., PassageStore], made_passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = exchanged(f"file://{tmp_path}/there", build(made_passages), "job")
    keys = tmp_path / "there" / place.store / "text_keys.u64"
    keys.write_bytes(bytes(keys.stat().st_size))
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "node"))
    with pytest.raises(ArtifactDamaged, match=r"text_keys\.u64 is damaged"):
        place.open()


def test_shards_wait_in_the_exchange_until_they_are_received(tmp_path: Path, source: Path) -> None:
    place = Exchanged(f"file://{tmp_path}/there", "passages", "shards-job", "f")
    folder = place.own_folder("encoder-1")
    (folder / "shard-00001.npy").write_bytes(source.read_bytes())
    sha256 = place.hand_over(folder / "shard-00001.npy")
    assert place.waiting() == {"shard-00001.npy": sha256}
    assert not list(folder.iterdir())
    here = tmp_path / "shard-00001.npy"
    place.receive(here, sha256)
    assert here.read_bytes() == source.read_bytes()
    assert place.waiting() == {}
    folder.rmdir()


def test_what_lost_encoders_left_in_an_exchange_is_removed_at_the_end(tmp_path: Path, source: Path) -> None:
    place, exchange = Exchanged(f"file://{tmp_path}/there", "passages", "shards-job", "f"), Exchange(f"file://{tmp_path}/there")
    twice, wanted = f"shard-00001.{'0' * 64}.npy", f"shard-00002.{'0' * 64}.npy"
    for name in (twice, wanted, f".{wanted}.0f0f0f0f.tmp", "somebody's.txt"):
        exchange.put(source, f"shards-job/{name}")
    exchange.put(source, f"shards-another/{twice}")
    place.end({"shard-00002.npy"})
    assert exchange.names("shards-job") == [wanted, "somebody's.txt"]
    assert exchange.names("shards-another") == [twice]
    assert place.waiting() == {"shard-00002.npy": "0" * 64}


def test_only_what_is_received_is_among_the_finished_shards(tmp_path: Path) -> None:
    place, here = SharedHome(tmp_path, tmp_path, "f", 20, tmp_path), tmp_path / "shard-00001.npy"
    tickets = list[str]()
    for worker in ("encoder-1", "encoder-2"):
        folder = place.own_folder(worker)
        (folder / "shard-00001.npy").write_text(worker)
        tickets.append(place.hand_over(folder / "shard-00001.npy"))
        folder.rmdir()  # as the worker does at its end
        assert not here.exists()
    place.receive(here, tickets[1])
    assert here.read_text() == "encoder-2"
    stale = place.own_folder("encoder-3") / "shard-00001.npy"
    stale.write_text("encoder-3")
    place.hand_over(stale)  # of an encoder taken for lost, or of an earlier build with other options
    assert here.read_text() == "encoder-2"
    place.end(set())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [here]
