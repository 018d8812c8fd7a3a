"""The name of a retriever: an index's (``bm25``, ``contriever``, ``contriever-ivfpq``), or several joined with ``+``."""

from __future__ import annotations

from dataclasses import dataclass, field

from wikidx.corpora.errors import InputError
from wikidx.indexer import INDEXES
from wikidx.indexer.naming import canonical_name, parse_index_name


@dataclass(frozen=True, slots=True)
class RetrieverName:
    """The indexes of a retriever, by their canonical names; several are fused."""

    parts: tuple[str, ...]
    typed: str = field(default="", compare=False)  # the text that was parsed, for messages

    @classmethod
    def parse(cls, text: str) -> RetrieverName:
        """Parse a retriever's name; aliases of encoders become canonical names. ``check`` validates the names."""
        return cls(tuple(map(canonical_name, text.split("+"))), text)

    def __str__(self) -> str:
        return "+".join(self.parts)

    @property
    def is_lexical(self) -> bool:
        """True if no vector index is among them."""
        return all(part in INDEXES for part in self.parts)

    def check(self) -> None:
        """Check that such a retriever can exist.

        Raises:
            UnknownNameError: no index can have such a name.
            InputError: an index is named twice.
        """
        for part in self.parts:
            parse_index_name(part, "retriever")
        if len(set(self.parts)) < len(self.parts):
            raise InputError(f"'{self.typed or self}' names a retriever twice")
