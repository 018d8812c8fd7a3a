"""Opening of rerankers by name. Heavy packages are imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from wikidx.base.errors import InputError
from wikidx.base.machine.devices import encoder_device
from wikidx.base.plugins import find
from wikidx.base.registry import load
from wikidx.indexer.networks.checkpoints import CONFIG, parse_checkpoint, read_json_object
from wikidx.indexer.networks.module_folders import MODULES
from wikidx.retrievers.base import Reranker

from . import KINDS, RERANKERS, reranker_name
from .checkpoint import RerankerSpec, find_folder
from .plugged import PluggedReranker

_HEADS = {"ForSequenceClassification": "cross-encoder", "ForCausalLM": "decoder", "LMHeadModel": "decoder"}


def open_reranker(name: str, *, device: str = "auto") -> Reranker:
    """Open a reranker; arguments and errors are those of ``find_reranker``."""
    return find_reranker(reranker_name(name))(device)


def find_reranker(name: str) -> Callable[[str], Reranker]:
    """Return the function that opens a reranker on a device, or on the first of several.

    Args:
        name: one of ``RERANKERS``, or a plug-in's name; ``KIND:LOCATION`` with one of ``KINDS``; or a location whose kind is recognised. A
            location is the path of a checkpoint's directory, which must contain a "/", or ``owner/name`` of a repository of the hub.

    Raises:
        UnknownNameError: no reranker has this name.
        InputError: the checkpoint is of no known kind.
        MissingExtraError, ArtifactError, DownloadError: see ``RerankerNetwork``; the function raises them, too.
    """
    kind, _, location = name.partition(":")
    if kind not in KINDS and "/" not in name:
        open_named: Callable[[str], Reranker] = find("reranker", name, RERANKERS, lambda plugged: partial(PluggedReranker, plugged))
        return lambda device: open_named(encoder_device(device))
    if kind not in KINDS:
        kind, location = _recognize(name), name
    open_kind: Callable[..., Reranker] = load("kind of reranker", kind, KINDS)
    if kind == "rerank":  # its location is no checkpoint
        return lambda device: open_kind(location)
    spec = RerankerSpec(name=location, checkpoint=parse_checkpoint(location))
    return lambda device: open_kind(spec, encoder_device(device))


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
