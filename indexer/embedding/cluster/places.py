"""How passages reach the nodes of a Ray cluster and shards come back: through a data home that all share, or through an exchange.

A worker writes a shard into a folder of its own and hands it over whole, under a name that no other worker uses or with its checksum; the
machine that gave the job takes from there what the ledger has accepted. So a worker that is taken for lost, or that an earlier build has
left running, harms nothing: among the finished shards only that machine writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple, Protocol

from wikidx.corpora.artifacts.building import PIECES
from wikidx.corpora.artifacts.durable import file_sha256, sync, write_durably
from wikidx.corpora.artifacts.home import home
from wikidx.corpora.artifacts.manifest import MANIFEST, Manifest, manifest_from_json
from wikidx.corpora.errors import ArtifactMismatch, StorageError
from wikidx.corpora.store import PassageStore

from .exchange import Exchange
from .nodes import check_shared, on_each_node

_SHORT_PAUSES_S = (0.5, 1.0)  # where to wait long is not worth it
_SEEN_S = 60.0  # in which a network file system shows here what a node has written
_SHARD = re.compile(r"shard-(\d+)\.([0-9a-f]{64})\.npy")


def shard_name(rows: range) -> str:
    """Return the name of the file by which some vectors are handed over."""
    return f"shard-{rows.start:08d}.npy"


class Place(Protocol):
    """Where a job's files are; it can be pickled, and is the same on all nodes."""

    def open(self) -> PassageStore:
        """On a node: return the store."""
        ...

    def own_folder(self, worker: str) -> Path:
        """On a node: make and return a folder that a worker writes its shards to."""
        ...

    def hand_over(self, shard: Path) -> str:
        """On a node: give a finished shard away, and return the ticket that it can be had for."""
        ...

    def receive(self, shard: Path, ticket: str) -> None:
        """On the machine that gave the job: have the shard at its place; ``StorageError`` if it does not come."""
        ...

    def end(self, unfinished: Collection[str]) -> None:
        """On the machine that gave the job: clean up; the shards with these names are still to be made."""
        ...


class SharedHome(NamedTuple):
    """The data home is the same folder on all nodes.

    Attributes:
        home: the data home.
        passages: the store's folder.
        fingerprint: the store's.
        n_rows: the store's.
        staging: where the finished shards are to be.
    """

    home: Path
    passages: Path
    fingerprint: str
    n_rows: int
    staging: Path

    def open(self) -> PassageStore:
        """Return the store; raises ``ArtifactMismatch`` or ``StorageError`` if this node has another one, or none."""
        os.environ["IDX_HOME"] = str(self.home)  # checkpoints may be there
        try:
            manifest = manifest_from_json((self.passages / MANIFEST).read_bytes())
        except (OSError, ValueError) as error:
            raise StorageError(f"{self.passages} cannot be read here ({error}): share it among all nodes, or say --exchange") from error
        _check_passages(manifest, self.fingerprint, self.passages)
        return PassageStore(self.passages, self.fingerprint, self.n_rows)

    def own_folder(self, worker: str) -> Path:
        """Make and return a folder beside the finished shards, so that to hand over is to rename."""
        folder = self._workers() / worker
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def hand_over(self, shard: Path) -> str:
        """Rename the shard to a name with the worker's, which is returned, beside the workers' folders."""
        ticket = f"{shard.parent.name}.{shard.name}"
        shard.replace(self._workers() / ticket)
        sync(self._workers())
        return ticket

    def receive(self, shard: Path, ticket: str) -> None:
        """Wait until what was handed over is seen, and rename it to the shard."""
        handed_over, until = self._workers() / ticket, time.monotonic() + _SEEN_S
        while not handed_over.is_file():
            if time.monotonic() > until:
                raise StorageError(f"{handed_over} was written by a node and is not seen here after {_SEEN_S:g} s: is the disk shared?")
            time.sleep(0.05)
        handed_over.replace(shard)
        sync(shard.parent)

    def end(self, unfinished: Collection[str]) -> None:
        """Remove the workers' folders, and what they have handed over and nobody wanted."""
        shutil.rmtree(self._workers(), ignore_errors=True)
        with contextlib.suppress(OSError):  # not there, or other pieces are in it
            self._workers().parent.rmdir()

    def _workers(self) -> Path:
        return self.staging / PIECES / "ray"


class Exchanged(NamedTuple):
    """Passages and shards go through an exchange; each node has a copy of the store in its own data home.

    The store stays in the exchange, and its copies in the nodes' ``.exchange``, for the next encoder; a user may delete both.

    Attributes:
        url: of the exchange.
        store: name of the store's folder there: two builds of the same passages may differ in their bytes.
        shards: name of the folder for shards there: of this job and no other.
        fingerprint: the store's.
    """

    url: str
    store: str
    shards: str
    fingerprint: str

    def open(self) -> PassageStore:
        """Return this node's copy of the store, fetched if there is none yet; raises as ``Exchange.get`` does."""
        folder = home() / ".exchange" / self.store
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another encoder of this node may be fetching it
            manifest = _fetched(Exchange(self.url), self.store, folder)
        _check_passages(manifest, self.fingerprint, folder)
        return PassageStore(folder, manifest.fingerprint, manifest.count("rows"))

    def own_folder(self, worker: str) -> Path:
        """Make and return a temporary folder."""
        return Path(tempfile.mkdtemp(prefix=f"idx-{worker}-"))

    def hand_over(self, shard: Path) -> str:
        """Put the shard into the exchange, its checksum, which is returned, in its name."""
        sha256 = file_sha256(shard)
        Exchange(self.url).put(shard, self._name(shard.name, sha256))
        shard.unlink()
        return sha256

    def receive(self, shard: Path, ticket: str) -> None:
        """Fetch the shard, and remove it from the exchange."""
        exchange, name = Exchange(self.url), self._name(shard.name, ticket)
        exchange.get(name, shard, ticket)
        exchange.remove(name)

    def waiting(self) -> dict[str, str]:
        """Return the shards that a stopped build has left in the exchange: file name -> sha256."""
        found = (_SHARD.fullmatch(name) for name in Exchange(self.url).names(self.shards))
        return {f"shard-{match[1]}.npy": match[2] for match in found if match}

    def end(self, unfinished: Collection[str]) -> None:
        """Remove from the job's folder what encoders that were lost have left: pieces of shards, and shards that another one made too."""
        exchange = Exchange(self.url, pauses_s=_SHORT_PAUSES_S)
        with contextlib.suppress(StorageError):  # what stays harms nothing, and the next job tries again
            for name in exchange.names(self.shards):
                match = _SHARD.fullmatch(name)
                if name.endswith(".tmp") or (match and f"shard-{match[1]}.npy" not in unfinished):
                    exchange.remove(f"{self.shards}/{name}")

    def _name(self, shard: str, sha256: str) -> str:
        return f"{self.shards}/{shard.removesuffix('.npy')}.{sha256}.npy"


def shared_home(store: PassageStore, staging: Path) -> SharedHome:
    """Return the place of a job whose nodes share the data home, checked on each of them.

    Raises:
        IdxError: a node does not see it.
    """
    check_shared(staging)
    return SharedHome(home(), store.folder, store.fingerprint, len(store), staging)


def exchanged(url: str, store: PassageStore, job_key: str) -> Exchanged:
    """Return the place of a job whose files go through an exchange; the store is put there if it is not there yet.

    Raises:
        InputError, MissingExtraError, StorageError: see ``Exchange``.
    """
    exchange = Exchange(url)
    content = (store.folder / MANIFEST).read_bytes()
    name = f"passages-{hashlib.sha256(content).hexdigest()[:24]}"
    manifest = manifest_from_json(content)
    for file, record in manifest.files.items():
        if exchange.size(f"{name}/{file}") != record.n_bytes:
            exchange.put(store.folder / file, f"{name}/{file}")
    exchange.put(store.folder / MANIFEST, f"{name}/{MANIFEST}")
    return Exchanged(url, name, f"shards-{job_key}", store.fingerprint)


def check_exchange(url: str) -> None:
    """Check that all nodes read what is written to an exchange here, and can write to it.

    Raises:
        IdxError: a node does not; the message names it.
        InputError, MissingExtraError, StorageError: this machine does not.
    """
    exchange, token = Exchange(url), secrets.token_hex(16)
    name = f".shared-{token}"
    _write_token(exchange, name, token)

    def used() -> str:
        return read_and_write(url, name)

    try:
        for node, read in on_each_node(used).items():
            if read != token:
                raise StorageError(f"node {node.address} reads something else from {url} than was written there: is it one place for all?")
    finally:
        exchange.remove(name)


def read_and_write(url: str, name: str) -> str:
    """Return the content of a small file in an exchange; write another one beside it, and remove that.

    Raises:
        InputError, MissingExtraError, StorageError: see ``Exchange``.
    """
    exchange, written = Exchange(url, pauses_s=_SHORT_PAUSES_S), f"{name}.{secrets.token_hex(4)}"
    content = exchange.read(name)
    _write_token(exchange, written, "")
    exchange.remove(written)
    return content.decode(errors="replace")


def _write_token(exchange: Exchange, name: str, token: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "token")
        path.write_text(token)
        exchange.put(path, name)


def _fetched(exchange: Exchange, store: str, folder: Path) -> Manifest:
    """Return the manifest of the store in a folder; fetches what is not there, the manifest last."""
    if (folder / MANIFEST).is_file():
        return manifest_from_json((folder / MANIFEST).read_bytes())
    content = exchange.read(f"{store}/{MANIFEST}")
    manifest = manifest_from_json(content)
    for file, record in manifest.files.items():
        if not (folder / file).is_file():  # files come whole
            exchange.get(f"{store}/{file}", folder / file, record.sha256)
    write_durably(folder / MANIFEST, content)
    return manifest


def _check_passages(manifest: Manifest, fingerprint: str, folder: Path) -> None:
    if manifest.fingerprint != fingerprint:
        raise ArtifactMismatch(
            f"{folder} holds other passages here ({manifest.fingerprint[:12]}…) than where the build was started ({fingerprint[:12]}…): "
            "share one data home among all nodes, or say --exchange"
        )
