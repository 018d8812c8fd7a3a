"""Retriever names: an index name (``bm25``, ``contriever``, ``contriever-ivfpq``), or several joined with ``+``."""

from __future__ import annotations

from dataclasses import dataclass, field

from wikidx.corpora.errors import InputError
from wikidx.indexer.naming import canonical_name, parse_index_name


@dataclass(frozen=True, slots=True)
class RetrieverName:
    """Name of a retriever: the canonical names of its indexes, whose results are fused if there are several."""

    parts: tuple[str, ...]
    typed: str = field(default="", compare=False)  # the parsed text, for error messages

    @classmethod
    def parse(cls, text: str) -> RetrieverName:
        """Parse a retriever's name without validation (see ``check``); aliases of encoders become canonical names."""
        return cls(tuple(map(canonical_name, text.split("+"))), text)

    def __str__(self) -> str:
        return "+".join(self.parts)

    @property
    def is_lexical(self) -> bool:
        """True if none of the indexes is a vector index."""
        return not any(parse_index_name(part).encoder for part in self.parts)

    def check(self) -> None:
        """Check that a retriever of this name can exist.

        Raises:
            UnknownNameError: no index can have the name of a part.
            InputError: an index is named twice.
        """
        for part in self.parts:
            parse_index_name(part, "retriever")
        if len(set(self.parts)) < len(self.parts):
            raise InputError(f"'{self.typed or self}' names a retriever twice")
