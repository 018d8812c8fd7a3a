"""Retriever names: an index (``bm25``, ``contriever``, ``contriever-ivfpq``), several joined with ``+``, or a pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from wikidx.base.errors import ArgumentError, InputError
from wikidx.base.plugins import find_plug_in, plug_in_names
from wikidx.base.registry import unknown_name_error
from wikidx.indexer.naming import canonical_name, is_index_name, parse_index_name

from .pipelines.notation import parse_pipeline
from .pipelines.saved import read_pipeline, saved_pipelines
from .pipelines.tree import REMOTE, Node, Reranked, Source, replace_sources, walk
from .rerankers import RERANKERS

_NOTATION = frozenset("{%>")  # one of these is in every text of a pipeline that is no name


@dataclass(frozen=True, slots=True)
class RetrieverName:
    """Name of a retriever: the canonical names of its indexes, whose results are fused if there are several.

    Attributes:
        parts: the indexes.
        pipeline: the pipeline over the indexes and remote retrievers; None: the search options fuse the indexes.
        saved: name of the pipeline, if it is a named one of the corpus.
    """

    parts: tuple[str, ...]
    pipeline: Node | None = None
    saved: str = ""
    typed: str = field(default="", compare=False)  # the parsed text, for error messages
    corpus: str | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, text: str, corpus: str | None = None) -> RetrieverName:
        """Parse a retriever's name without validation (see ``check``); aliases of encoders become canonical names.

        Args:
            text: the name.
            corpus: the corpus whose named pipelines are known; None: none are.

        Raises:
            ArgumentError: a name is no text.
            InputError: a pipeline does not follow the notation.
        """
        for name in (text, "" if corpus is None else corpus):
            if not isinstance(name, str):
                raise ArgumentError(f"a corpus or a retriever is named by a text, such as 'sample' or 'bm25+minilm', not by {name!r:.60}")
        files = saved_pipelines(corpus) if corpus else {}
        is_saved = text in files and not is_index_name(text)
        if not (is_saved or _NOTATION & set(text) or REMOTE in text):
            return cls(tuple(map(canonical_name, text.split("+"))), typed=text, corpus=corpus)

        def resolve(source: Source) -> Node:
            name = str(canonical_name(source.name))
            if name not in files or is_index_name(name):
                return replace(source, name=name)
            node = replace_sources(read_pipeline(files[name]), lambda below: replace(below, name=str(canonical_name(below.name))))
            return node if source.keep is None else replace(node, keep=min(source.keep, node.keep or source.keep))

        pipeline = replace_sources(Source(text) if is_saved else parse_pipeline(text), resolve)
        indexes = [name for name in _sources(pipeline) if not name.startswith(REMOTE)]
        return cls(tuple(map(canonical_name, indexes)), pipeline, text if is_saved else "", text, corpus)

    def __str__(self) -> str:
        return self.saved or str(self.pipeline or "+".join(self.parts))

    @property
    def remotes(self) -> tuple[str, ...]:
        """Names of the pipeline's remote retrievers."""
        return tuple(name for name in _sources(self.pipeline) if name.startswith(REMOTE)) if self.pipeline else ()

    @property
    def rerankers(self) -> tuple[str, ...]:
        """Names of the pipeline's rerankers."""
        nodes = walk(self.pipeline) if self.pipeline else ()
        return tuple(dict.fromkeys(node.reranker for node in nodes if isinstance(node, Reranked)))

    @property
    def is_lexical(self) -> bool:
        """True if all that searches or reranks is a lexical index."""
        return not (self.remotes or self.rerankers or any(parse_index_name(part).source != "passages" for part in self.parts))

    def check(self) -> None:
        """Check that a retriever of this name can exist.

        Raises:
            UnknownNameError: no index can have the name of a part, or no reranker the name of one.
            InputError: an index is named twice, some parts take only vectors and others only texts, or the URL of a remote retriever is
                invalid.
        """
        for part in self.parts:
            if not is_index_name(part):
                from wikidx.indexer.catalog import built_indexes

                built = [*built_indexes(self.corpus), *saved_pipelines(self.corpus)] if self.corpus else []
                parse_index_name(part, "retriever", built)  # raises
        if len(set(self.parts)) < len(self.parts):
            raise InputError(f"'{self.typed or self}' names a retriever twice")
        takes_vectors = {parse_index_name(part).encoder == "none" for part in self.parts} | ({False} if self.rerankers else set())
        if len(takes_vectors) > 1:
            raise InputError(f"'{self.typed or self}' can answer no query: vectors of 'none' take vectors, and the others take texts")
        if self.rerankers or self.remotes:
            from .pipelines.remote import parse_remote

            for name in self.rerankers:
                if not {"/", ":"} & set(name) and name not in RERANKERS and find_plug_in("reranker", name) is None:
                    raise unknown_name_error("reranker", name, [*RERANKERS, *plug_in_names("reranker")])
            for name in self.remotes:
                parse_remote(name)


def _sources(pipeline: Node) -> list[str]:
    return list(dict.fromkeys(node.name for node in walk(pipeline) if isinstance(node, Source)))
