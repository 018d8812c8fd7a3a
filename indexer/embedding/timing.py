"""Speed and memory of an encoder. They are measured on a sample of passages, and kept in the data home for later estimates."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.corpora.artifacts.durable import parse_json, write_durably
from wikidx.corpora.artifacts.home import home
from wikidx.corpora.artifacts.manifest import package_versions
from wikidx.corpora.passage import Passage
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.machine.threads import n_threads

from .options import Resources
from .pipeline import PassageEncoder

_WARM_UP_PASSAGES = 8


class Measurement(NamedTuple):
    """Measurements of an encoder on a sample.

    Attributes:
        seconds_per_token: seconds per token that the encoder reads, on one device.
        dim: components of a vector.
        peak_bytes: peak memory of the process.
    """

    seconds_per_token: float
    dim: int
    peak_bytes: int


def measure_encoder(encoder: PassageEncoder, passages: Sequence[Passage]) -> Measurement:
    """Time an encoder on some passages after a warm-up.

    On a GPU, other processes tokenise meanwhile, and the slower of both counts.
    """
    encoder.encode(passages if encoder.n_tokenizing else passages[:_WARM_UP_PASSAGES])  # on a GPU, each new shape takes long once
    started = time.perf_counter()
    n_tokens = encoder.count_tokens(passages)
    tokenized = time.perf_counter()
    vectors = encoder.encode(passages)
    seconds, tokenizing_seconds = time.perf_counter() - tokenized, tokenized - started
    if encoder.n_tokenizing:
        seconds = max(seconds - tokenizing_seconds, tokenizing_seconds / encoder.n_tokenizing)
    seconds_per_token = seconds / n_tokens
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Measurement(seconds_per_token, vectors.shape[1], peak_bytes)


def kept_measurement(spec: EncoderSpec, resources: Resources) -> Measurement | None:
    """Return an earlier measurement on this machine with the same checkpoint, resources and package versions; None if none is kept."""
    try:
        seconds_per_token, dim, peak_bytes = _read_all()[_key(spec, resources)]
        return Measurement(float(seconds_per_token), int(dim), int(peak_bytes))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def keep_measurement(spec: EncoderSpec, resources: Resources, measurement: Measurement) -> None:
    """Write a measurement to the data home, if the data home is writable."""
    with contextlib.suppress(OSError):
        home().mkdir(parents=True, exist_ok=True)
        write_durably(_path(), json.dumps(_read_all() | {_key(spec, resources): measurement}, indent=1).encode())


def _path() -> Path:
    return home() / "timings.json"


def _read_all() -> dict[str, Any]:
    try:
        kept = parse_json(_path().read_bytes())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _key(spec: EncoderSpec, resources: Resources) -> str:
    versions = package_versions(("wikidx", "torch", "transformers"))
    return json.dumps([spec.name, str(spec.folder("passage")), *resources, n_threads(), socket.gethostname(), versions])
