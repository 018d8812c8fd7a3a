"""Encoders by the user's own code: plug-ins, whose vectors are checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import InputError
from wikidx.base.plugins import PlugIn, find_plug_in, running
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import EncodesTexts, Vectors
from wikidx.indexer.networks.checkpoints import PluggedModel

from .recipes import Recipe, register
from .spec import NO_NETWORK, EncoderSpec, Side


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEncoder:
    """A plug-in: an encoder by the user's own code. For a checkpoint that needs only settings, a plug-in is an ``EncoderSpec``.

    Attributes:
        name: the encoder's name.
        dim: components of a vector.
        open: device, such as "cpu" or "cuda:0" -> what encodes texts.
    """

    plugin_kind: ClassVar[str] = "encoder"

    name: str
    dim: int
    open: Callable[[str], EncodesTexts]


def spec_of_plugged(plugged: PlugIn) -> EncoderSpec:
    """Return the settings of an encoder that is a plug-in."""
    if isinstance(plugged.value, EncoderSpec):
        return replace(plugged.value, name=plugged.name, code_sha256=plugged.sha256)
    own = plugged.instance_of(OwnEncoder, "an encoder is an OwnEncoder or an EncoderSpec")
    return spec_of_absent(plugged.name, _recipe(plugged, own.dim))


def keep_name(spec: EncoderSpec) -> None:
    """Keep the name of an encoder that is a plug-in, and its place, so that a later process can say what to name again."""
    if spec.code_sha256 is not None and (plugged := find_plug_in("encoder", spec.name)) is not None:
        register(spec.name, _recipe(plugged, spec.dim), replace=True)


def _recipe(plugged: PlugIn, dim: int) -> Recipe:
    return {"plugin": plugged.reference, "code_sha256": plugged.sha256, "dim": dim}


def spec_of_absent(name: str, recipe: Recipe) -> EncoderSpec:
    """Return the encoder of a kept name, which cannot be opened; raises ``KeyError`` or ``TypeError`` if settings are missing."""
    model, values = PluggedModel(recipe["plugin"]), {"dim": recipe["dim"], "code_sha256": recipe["code_sha256"]}
    return EncoderSpec(name=name, query_checkpoint=model, passage_checkpoint=model, normalize=False, **NO_NETWORK, **values)


class PluggedEncoder:
    """An encoder whose vectors are checked.

    Args:
        spec: an encoder whose checkpoint is a ``PluggedModel``.
        device: device of its network, if it has one.

    Attributes:
        spec: the encoder.
        dim: components of a vector.

    Raises:
        InputError: the plug-in has not been named, or its code fails; also of all methods.
    """

    def __init__(self, spec: EncoderSpec, device: str) -> None:
        plugged = find_plug_in("encoder", spec.name)
        if plugged is None:
            reference = spec.source("query")
            raise InputError(f"the encoder '{spec.name}' is a plug-in, {reference}: name it again, by --plugin {reference}")
        self.spec, self.dim, self._plugged = spec, spec.dim, plugged
        with running(plugged, f"when it is opened on {device}"):
            self._encoder: EncodesTexts = plugged.value.open(device)

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Return float32 vectors, shape (len(queries), dim)."""
        return self._encode("encode_queries", queries, f"at a batch of {len(queries)}, from {queries[0]!r:.60} on" if queries else "")

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Return float32 vectors, shape (len(passages), dim)."""
        place = f"at a batch of {len(passages):,} passages, from the id {passages[0].id!r:.60} on" if passages else ""
        return self._encode("encode_passages", passages, place)

    def encode_texts(self, side: Side, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.int64]]:
        """Return the vectors of texts as queries or as passages without titles, (len(texts), dim), and 1 token for each."""
        vectors = self.encode_queries(texts) if side == "query" else self.encode_passages([Passage("", "", text) for text in texts])
        return vectors, np.ones(len(texts), dtype=np.int64)

    def _encode(self, method: str, texts: Sequence[Any], place: str) -> Vectors:
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        with running(self._plugged, place):
            vectors = np.ascontiguousarray(getattr(self._encoder, method)(texts), dtype=np.float32)
        if vectors.shape != (len(texts), self.dim):
            raise InputError(f"{self._plugged.reference} returns an array of {vectors.shape} instead of {(len(texts), self.dim)} {place}")
        if not np.isfinite(vectors).all():
            raise InputError(f"{self._plugged.reference} returns numbers that are not finite {place}")
        return vectors
