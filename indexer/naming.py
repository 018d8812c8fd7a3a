"""Names of indexes: one of ``INDEXES``, an encoder for exact search over its vectors, or ``<encoder>-<kind>`` for an index made of them."""

from __future__ import annotations

from typing import NamedTuple

from corpora.errors import InputError, UnknownNameError
from corpora.registry import load, near_names

from . import ENCODERS, INDEXES, VECTOR_INDEXES
from .encoders.spec import EncoderSpec


def encoder_spec(name: str) -> EncoderSpec:
    """Return what is known of an encoder.

    Raises:
        UnknownNameError: there is no such encoder.
    """
    spec: EncoderSpec = load("encoder", name, ENCODERS)
    return spec


class VectorIndexName(NamedTuple):
    """The name of an index over vectors: the encoder's own name, and the kind."""

    encoder: str
    kind: str

    def __str__(self) -> str:
        """Return the name as a directory and a retriever have it."""
        return f"{self.encoder}-{self.kind}"


def vector_index_name(name: str) -> VectorIndexName | None:
    """Return what encoder and kind an index's name says, None if it is no name of an index over vectors. Both may have hyphens."""
    for kind in VECTOR_INDEXES:
        encoder = name.removesuffix(f"-{kind}")
        if encoder != name and encoder in ENCODERS:
            return VectorIndexName(encoder_spec(encoder).name, kind)
    return None


def canonical_name(name: str) -> str:
    """Return the one name of an index that can be named in two ways, as encoders can; any other as it is."""
    if name in ENCODERS:
        return encoder_spec(name).name
    return str(vector_index_name(name) or name)


def joined_names(retriever: str) -> list[str]:
    """Return the names of the indexes that a retriever searches, which its name joins with "+".

    Raises:
        InputError: two of them are of one index.
    """
    names = retriever.split("+")
    if len(set(map(canonical_name, names))) < len(names):
        raise InputError(f"'{retriever}' names a retriever twice")
    return names


def encoder_name(name: str) -> str:
    """Return the own name of the encoder whose vectors the index of that name searches; the index is not one of ``INDEXES``."""
    made = vector_index_name(name)
    return made.encoder if made else encoder_spec(name).name


def is_index_name(name: str) -> bool:
    """Return whether there can be an index of that name."""
    return name in INDEXES or name in ENCODERS or vector_index_name(name) is not None


def unknown_name(what: str, name: str) -> UnknownNameError:
    """Return (not raise) the error for a name that no index can have.

    Args:
        what: what was named, for the message ("index", "retriever").
        name: the name.
    """
    if name in VECTOR_INDEXES:
        return near_names(what, name, [f"{encoder}-{name}" for encoder in ENCODERS])
    encoders = [encoder for encoder in ENCODERS if name.startswith(f"{encoder}-")]
    if not encoders:
        return near_names(what, name, [*INDEXES, *ENCODERS])
    encoder = max(encoders, key=len)
    return near_names(what, name, [encoder, *(f"{encoder}-{kind}" for kind in VECTOR_INDEXES)])


def index_names() -> list[str]:
    """Return the names of all indexes that there can be, each once: an encoder with two names by its own."""
    names = list(INDEXES)
    for encoder in dict.fromkeys(encoder_spec(name).name for name in ENCODERS):
        names += [encoder, *(str(VectorIndexName(encoder, kind)) for kind in VECTOR_INDEXES)]
    return names
