"""Opening of rerankers by name. Heavy packages are imported on first use."""

from __future__ import annotations

from collections.abc import Callable

from wikidx.base.errors import InputError
from wikidx.base.machine.devices import encoder_device
from wikidx.base.machine.placement import Demand
from wikidx.base.registry import load
from wikidx.indexer.encoders.checkpoints import CONFIG, parse_checkpoint, read_json_object
from wikidx.indexer.encoders.network_size import published_size
from wikidx.retrievers.base import Reranker

from . import KINDS, RERANKERS
from .checkpoint import GPU_BATCH_TOKENS, MODULES, RerankerSpec, demand, demand_name, find_folder

_LONGEST_INPUT = 512  # tokens of a reranker whose checkpoint is not here
_HEADS = {"ForSequenceClassification": "cross-encoder", "ForCausalLM": "decoder", "LMHeadModel": "decoder"}


def open_reranker(name: str, *, device: str = "auto") -> Reranker:
    """Open a reranker; arguments and errors are those of ``find_reranker``."""
    return find_reranker(name)(device)


def find_reranker(name: str) -> Callable[[str], Reranker]:
    """Return the function that opens a reranker on a device, or on the first of several.

    Args:
        name: one of ``RERANKERS``; ``KIND:LOCATION`` with one of ``KINDS``; or a location whose kind is recognised. A location is the path
            of a checkpoint's directory, which must contain a "/", or ``owner/name`` of a repository of the hub.

    Raises:
        UnknownNameError: no reranker has this name.
        InputError: the checkpoint is of no known kind.
        MissingExtraError, ArtifactError, DownloadError: see ``Network``; the function raises them, too.
    """
    kind, _, location = name.partition(":")
    if kind not in KINDS and "/" not in name:
        open_named: Callable[[str], Reranker] = load("reranker", name, RERANKERS)
        return lambda device: open_named(encoder_device(device))
    if kind not in KINDS:
        kind, location = _recognize(name), name
    open_kind: Callable[[str, str], Reranker] = load("kind of reranker", kind, KINDS)
    return lambda device: open_kind(location, encoder_device(device))


def reranker_demand(name: str) -> Demand | None:
    """Return the memory of a reranker on a GPU; None for a server's. Arguments and errors are those of ``find_reranker``."""
    spec = _spec_of(name)
    return None if spec is None else demand(spec)._replace(name=demand_name(name))


def planned_demand(name: str) -> Demand | None:
    """Return the memory of a reranker on a GPU without a download, by its configuration here or its publication; None for a server's.

    Raises:
        UnknownNameError: no reranker has this name.
        InputError: the size of its network is unknown.
    """
    spec = _spec_of(name)
    if spec is None:
        return None
    size = published_size(name, spec.checkpoint)
    if size is None:
        raise InputError(f"the size of the reranker '{name}' is not known here: name it by the folder of its checkpoint")
    return size.demand(demand_name(name), n_tokens=GPU_BATCH_TOKENS, width=spec.max_tokens or _LONGEST_INPUT, dtype="float16")


def _spec_of(name: str) -> RerankerSpec | None:
    """Return the checkpoint of a reranker; None if it is a server's."""
    kind, _, location = name.partition(":")
    if kind not in KINDS and "/" not in name:
        spec: RerankerSpec = load("reranker", name, RERANKERS).args[0]
        return spec
    return None if kind == "rerank" else RerankerSpec(name=name, checkpoint=parse_checkpoint(location if kind in KINDS else name))


def _recognize(location: str) -> str:
    """Return the kind of the reranker in a checkpoint."""
    folder = find_folder(parse_checkpoint(location), location)
    architectures = read_json_object(folder / CONFIG, location).get("architectures") or []
    for head, kind in _HEADS.items():
        if any(str(architecture).endswith(head) for architecture in architectures):
            return kind
    if (folder / MODULES).is_file():
        return "maxsim"
    described = " or ".join(map(str, architectures)) or "no architecture"
    kinds = " or ".join(f"{kind}:{location}" for kind in ("cross-encoder", "decoder", "maxsim"))
    raise InputError(f"{folder / CONFIG} describes {described}, which tells no kind of reranker: name it, as in {kinds}")
