"""Names of indexes: one of ``INDEXES``, an encoder for exact search over its vectors, or ``<encoder>-<kind>`` for an index of them."""

from __future__ import annotations

from typing import NamedTuple

from wikidx.corpora.errors import UnknownNameError
from wikidx.corpora.registry import load, near_names

from . import ENCODERS, INDEXES, VECTOR_INDEXES
from .encoders.spec import EncoderSpec


def encoder_spec(name: str) -> EncoderSpec:
    """Return the spec of an encoder.

    Raises:
        UnknownNameError: there is no such encoder.
    """
    spec: EncoderSpec = load("encoder", name, ENCODERS)
    return spec


class IndexName(NamedTuple):
    """A resolved index name: the encoder's canonical name, "" for lexical search, and the kind, "" for exact search."""

    encoder: str
    kind: str

    def __str__(self) -> str:
        """Return the name as used for directories and retrievers."""
        return "-".join(filter(None, self))


def parse_index_name(name: str, what: str = "index") -> IndexName:
    """Resolve the name of an index. Encoders and kinds may contain hyphens, and an encoder may have aliases.

    Args:
        name: the name.
        what: the kind of name, for the message ("index", "retriever").

    Raises:
        UnknownNameError: no index can have this name.
    """
    if name in INDEXES:
        return IndexName("", name)
    if name in ENCODERS:
        return IndexName(encoder_spec(name).name, "")
    for kind in VECTOR_INDEXES:
        encoder = name.removesuffix(f"-{kind}")
        if encoder != name and encoder in ENCODERS:
            return IndexName(encoder_spec(encoder).name, kind)
    raise _unknown_name(what, name)


def canonical_name(name: str) -> str:
    """Return the canonical name of an index; an impossible name is returned unchanged."""
    try:
        return str(parse_index_name(name))
    except UnknownNameError:
        return name


def _unknown_name(what: str, name: str) -> UnknownNameError:
    """Return (not raise) the error for a name that no index can have.

    Args:
        what: the kind of name, for the message ("index", "retriever").
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
    """Return the canonical names of all possible indexes."""
    names = list(INDEXES)
    for encoder in dict.fromkeys(encoder_spec(name).name for name in ENCODERS):
        names += [encoder, *(f"{encoder}-{kind}" for kind in VECTOR_INDEXES)]
    return names
