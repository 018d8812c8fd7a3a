"""Names of indexes.

A key of ``INDEXES`` names a lexical index. ``<kind>-<number>-<number>`` names a lexical index with other parameters than the defaults
of its kind; see ``IndexKind.numbers``. An encoder's name means exact search over its vectors. ``<encoder>-<kind>`` names an index built
from these vectors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wikidx.corpora.errors import UnknownNameError
from wikidx.corpora.registry import load, unknown_name_error

from . import ENCODERS, INDEXES, VECTOR_INDEXES
from .encoders.spec import EncoderSpec


def encoder_spec(name: str) -> EncoderSpec:
    """Return the spec of an encoder.

    Raises:
        UnknownNameError: the encoder is unknown.
    """
    spec: EncoderSpec = load("encoder", name, ENCODERS)
    return spec


class IndexName(NamedTuple):
    """A resolved index name.

    Attributes:
        encoder: the encoder's canonical name; "" for a lexical index.
        kind: the kind of index; "" for exact search.
        numbers: values of the parameters ``IndexKind.numbers`` in canonical spelling; empty for the defaults.
    """

    encoder: str
    kind: str
    numbers: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the name as used for directories and retrievers."""
        return "-".join(filter(None, (self.encoder, self.kind, *self.numbers)))


def parse_index_name(name: str, label: str = "index") -> IndexName:
    """Resolve the name of an index. Names of encoders and kinds may contain hyphens, and encoders may have aliases.

    Args:
        name: the name.
        label: the kind of name, for the message ("index", "retriever").

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
    for kind in INDEXES:
        if name.startswith(f"{kind}-"):
            return _parse_numbers(kind, name, label)
    raise _unknown_name(label, name)


def _parse_numbers(kind: str, name: str, label: str) -> IndexName:
    """Resolve ``<kind>-<number>-<number>``, with float32 numbers in shortest spelling; raises as ``parse_index_name`` does."""
    known = load("index", kind, INDEXES).numbers
    try:
        pairs = list(zip(map(float, name.removeprefix(f"{kind}-").split("-")), known.values(), strict=True))
    except ValueError:
        pairs = []
    if not pairs or not all(0 <= value <= number.largest for value, number in pairs):
        bounds = " and ".join(f"{parameter} from 0 to {number.largest:g}" for parameter, number in known.items())
        raise unknown_name_error(label, name, [kind, *([f"{'-'.join([kind, *known])} with {bounds}"] if known else [])])
    numbers = tuple(np.format_float_positional(np.float32(value), trim="-") for value, _ in pairs)
    is_default = [*map(float, numbers)] == [number.default for _, number in pairs]
    index_name = IndexName("", kind, () if is_default else numbers)
    if str(index_name) != name:
        raise UnknownNameError(f"unknown {label} {name[:80]!r}: it is named '{index_name}'")
    return index_name


def canonical_name(name: str) -> str:
    """Return the canonical name of an index. A name that no index can have is returned unchanged."""
    try:
        return str(parse_index_name(name))
    except UnknownNameError:
        return name


def is_index_name(name: str) -> bool:
    """Return whether an index can have this name."""
    try:
        return bool(parse_index_name(name))
    except UnknownNameError:
        return False


def _unknown_name(label: str, name: str) -> UnknownNameError:
    """Return the error for a name that no index can have."""
    if name in VECTOR_INDEXES:
        return unknown_name_error(label, name, [f"{encoder}-{name}" for encoder in ENCODERS])
    encoders = [encoder for encoder in ENCODERS if name.startswith(f"{encoder}-")]
    if not encoders:
        return unknown_name_error(label, name, [*INDEXES, *ENCODERS])
    encoder = max(encoders, key=len)
    return unknown_name_error(label, name, [encoder, *(f"{encoder}-{kind}" for kind in VECTOR_INDEXES)])


def index_names() -> list[str]:
    """Return the canonical names of all possible indexes, except names with numbers."""
    names = list(INDEXES)
    for encoder in dict.fromkeys(encoder_spec(name).name for name in ENCODERS):
        names += [encoder, *(f"{encoder}-{kind}" for kind in VECTOR_INDEXES)]
    return names
