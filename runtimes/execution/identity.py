"""Identities of models, indexes and packages for the record of a run: checksums, fingerprints, versions."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wikidx.base.artifacts.building import redact_command, strip_credentials
from wikidx.base.artifacts.manifest import Manifest, package_versions
from wikidx.base.plugins import recorded
from wikidx.base.registry import unknown_name_error
from wikidx.corpora.reading.compression import read_text
from wikidx.indexer.networks.checkpoints import checksum
from wikidx.retrievers.errors import NotReady
from wikidx.retrievers.naming import RetrieverName
from wikidx.runtimes.llms.gguf_files import find_gguf
from wikidx.runtimes.llms.naming import BACKENDS, ModelSpec, find_backend, parse_model_options

if TYPE_CHECKING:
    from wikidx.retrievers.client import RemoteSearcher

PACKAGES = "wikidx numpy numba lmdb urllib3 torch transformers tokenizers vllm faiss-cpu faiss-gpu faiss-gpu-cuvs pyserini".split()


def model_identity(spec: ModelSpec, device: str) -> dict[str, Any]:
    """Return backend, name and version of a model, and the device of a checkpoint with those of its options that affect the results.

    The version is the URL of an endpoint, the checksum of a script, of a plug-in's file, of a GGUF file (an embedded model's, too) or of a
    checkpoint's folder, or the commit of a hub repository.
    """
    identity: dict[str, Any] = {"backend": spec.backend, "model": spec.model}
    backend = find_backend(spec.backend)
    kind = backend.kind
    if kind == "endpoint":
        identity["url"] = strip_credentials(spec.url or os.environ.get("OPENAI_BASE_URL") or "") or None
    elif kind == "script":
        identity["sha256"] = hashlib.sha256(read_text(Path(spec.model)).encode()).hexdigest()
    elif kind == "plug-in":
        identity |= {**recorded("backend", spec.backend, BACKENDS), "device": device}
    else:
        options = parse_model_options(spec)
        identity |= _checkpoint_version(spec.model, str(options.get("revision") or "main"))
        identity["device"] = device
        affecting = {name: value for name, value in options.items() if name not in backend.neutral}
        identity |= {"options": affecting} if affecting else {}
    return identity


def _checkpoint_version(model: str, revision: str) -> dict[str, str | None]:
    gguf = find_gguf(model)
    if gguf is not None:
        return {"gguf": checksum(gguf)}
    return {"files": folder_digest(Path(model))} if Path(model).is_dir() else {"commit": _hub_commit(model, revision)}


def folder_digest(folder: Path) -> str:
    """Return a SHA-256 over the names and checksums of the files in a folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return hashlib.sha256(json.dumps([[file.name, checksum(file)] for file in files]).encode()).hexdigest()


def _hub_commit(repository: str, revision: str) -> str | None:
    """Return the commit of a repository's revision in Hugging Face's cache; None if it is not cached."""
    hub = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser() / "hub"
    cache = Path(os.environ.get("HF_HUB_CACHE") or hub)
    ref = cache / f"models--{repository.replace('/', '--')}" / "refs" / revision
    return ref.read_text(encoding="ascii").strip() if ref.is_file() else None


def local_fingerprints(corpus: str, retriever: str) -> dict[str, str]:
    """Return the fingerprint of a built corpus under "passages", and a digest of each index's manifest under the index's name.

    The text of a pipeline is under "pipeline".

    Raises:
        ArtifactError: the corpus or an index is missing or unusable.
    """
    from wikidx.corpora.build import store_manifest
    from wikidx.indexer.catalog import index_ref

    passages, name = store_manifest(corpus).fingerprint, RetrieverName.parse(retriever, corpus)
    indexes = {part: _manifest_digest(index_ref(corpus, part).manifest(passages)) for part in name.parts}
    return {"passages": passages, **indexes} | ({"pipeline": str(name.pipeline)} if name.pipeline else {})


def _manifest_digest(manifest: Manifest) -> str:
    files = {name: record.sha256 for name, record in manifest.files.items()}
    return hashlib.sha256((manifest.recipe.to_json() + json.dumps(files, sort_keys=True)).encode()).hexdigest()


def describe_served(client: RemoteSearcher, corpus: str, retriever: str) -> dict[str, Any]:
    """Return a server's URL, and its corpus and retriever with their fingerprints; an empty name stands for the server's first.

    Raises:
        ServiceError: the server does not answer, is not an idx server, or is still opening the retriever.
        UnknownNameError: the server does not serve this corpus or retriever.
    """
    offer = client.served(corpus)
    retriever = retriever or next(iter(offer.retrievers))
    if retriever not in offer.retrievers:
        raise unknown_name_error("retriever", retriever, offer.retrievers)
    if not offer.retrievers[retriever]:
        raise NotReady(f"{client.url} is still opening '{retriever}' over '{offer.corpus}': wait for its line 'ready'")
    known = {name: list(identity) for name, identity in offer.indexes.items() if name in RetrieverName.parse(retriever).parts}
    fingerprints = {"passages": offer.fingerprint, **known}
    return {"url": client.url, "corpus": offer.corpus, "retriever": retriever, "fingerprints": fingerprints}


def session() -> dict[str, Any]:
    """Return the start time, arguments and package versions of the running command."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": ["idx", *redact_command(sys.argv[1:])],
        "versions": package_versions(PACKAGES),
    }


def questions_digest(questions: Sequence[tuple[Any, ...]]) -> str:
    """Return a SHA-256 over the ids, texts and answers of questions, in order."""
    return hashlib.sha256(json.dumps(questions).encode()).hexdigest()
