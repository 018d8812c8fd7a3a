"""Identities of models, indexes and installations for the record of a run: checksums, fingerprints, versions."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wikidx.corpora.artifacts.durable import file_sha256
from wikidx.corpora.artifacts.manifest import Manifest, package_versions
from wikidx.corpora.registry import near_names
from wikidx.retrievers.errors import NotReady
from wikidx.retrievers.naming import RetrieverName
from wikidx.runtimes.llms.naming import BACKENDS, Spec

if TYPE_CHECKING:
    from wikidx.retrievers.client import ServerClient

_PACKAGES = (
    "wikidx",
    "numpy",
    "numba",
    "lmdb",
    "urllib3",
    "torch",
    "transformers",
    "tokenizers",
    "vllm",
    "faiss-cpu",
    "faiss-gpu",
    "pyserini",
)
_READ_WHOLE = 32 << 20  # bytes; larger files, which hold weights, are identified by their size and both ends
_END = 1 << 20

_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]*@")
_HIDDEN = "…"


def model_identity(spec: Spec, device: str) -> dict[str, str | None]:
    """Return the identity of a model: its name, and for local files their checksum or the hub's commit."""
    about: dict[str, str | None] = {"backend": spec.backend, "model": spec.model}
    kind = BACKENDS[spec.backend].kind
    if kind == "endpoint":
        about["url"] = without_user(spec.url or os.environ.get("OPENAI_BASE_URL") or "") or None
    elif kind == "script":
        about["sha256"] = file_sha256(Path(spec.model))
    else:
        folder = Path(spec.model)
        about |= {"files": folder_digest(folder)} if folder.is_dir() else {"commit": _hub_commit(spec.model)}
        about["device"] = device
    return about


def folder_digest(folder: Path) -> str:
    """Return a sha256 over the files of a checkpoint; of files over 32 MB, only the size and the first and last MB count."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        size = file.stat().st_size
        digest.update(json.dumps([file.name, size]).encode())
        with file.open("rb") as content:
            if size <= _READ_WHOLE:
                digest.update(content.read())
            else:
                digest.update(content.read(_END))
                content.seek(-_END, os.SEEK_END)
                digest.update(content.read())
    return digest.hexdigest()


def _hub_commit(repository: str) -> str | None:
    """Return the commit of a repository's main branch in Hugging Face's cache; None: it is not cached."""
    hub = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser() / "hub"
    cache = Path(os.environ.get("HF_HUB_CACHE") or hub)
    ref = cache / f"models--{repository.replace('/', '--')}" / "refs" / "main"
    return ref.read_text(encoding="ascii").strip() if ref.is_file() else None


def local_fingerprints(corpus: str, retriever: str) -> dict[str, str]:
    """Return the fingerprint of a built corpus, and a sha256 of each index's manifest.

    Raises:
        ArtifactError: one of them is missing or unusable.
    """
    from wikidx.corpora.build import store_manifest
    from wikidx.indexer.catalog import index_ref

    passages = store_manifest(corpus).fingerprint
    return {"passages": passages} | {
        name: _promised(index_ref(corpus, name).manifest(passages)) for name in RetrieverName.parse(retriever).parts
    }


def _promised(manifest: Manifest) -> str:
    files = {name: record.sha256 for name, record in manifest.files.items()}
    return hashlib.sha256((manifest.recipe.to_json() + json.dumps(files, sort_keys=True)).encode()).hexdigest()


def served(client: ServerClient, corpus: str | None, retriever: str | None) -> dict[str, Any]:
    """Return corpus and retriever of a search server, its first ones if none is named, and their identities.

    Raises:
        ServiceError: the server does not answer, is not an idx server, or is still opening the corpus.
        UnknownNameError: it does not serve that corpus or retriever.
    """
    corpora = client.corpora()
    corpus = corpus or next(iter(corpora))
    if corpus not in corpora:
        raise near_names("corpus", corpus, corpora)
    found = corpora[corpus]
    retriever = retriever or next(iter(found.retrievers))
    if retriever not in found.retrievers:
        raise near_names("retriever", retriever, found.retrievers)
    if not found.retrievers[retriever]:
        raise NotReady(f"{client.url} is still opening '{retriever}' over '{corpus}': wait for its line 'ready'")
    known = {name: list(about) for name, about in found.indexes.items() if name in RetrieverName.parse(retriever).parts}
    return {"corpus": corpus, "retriever": retriever, "fingerprints": {"passages": found.fingerprint, **known}}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the relevant packages that are installed."""
    return package_versions(_PACKAGES)


def without_user(text: str) -> str:
    """Return a text with users and passwords removed from its URLs."""
    return _USER_IN_URL.sub("", text)


def session() -> dict[str, Any]:
    """Return the record of this start of a command: facts that do not decide the results."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": ["idx", *command_line(sys.argv[1:])],
        "versions": versions(),
    }


def command_line(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command without keys and passwords."""
    shown, hides_next = list[str](), False
    for argument in arguments:
        hidden = re.sub(r"^(--api-key=).*", rf"\1{_HIDDEN}", argument, flags=re.DOTALL)
        shown.append(_HIDDEN if hides_next else without_user(hidden))
        hides_next = argument == "--api-key"
    return shown


def questions_digest(questions: Sequence[tuple[Any, ...]]) -> str:
    """Return a sha256 over questions: their ids, texts and answers, in order."""
    return hashlib.sha256(json.dumps(questions).encode()).hexdigest()
