"""Build a corpus with the indexes of a retriever, from Python values, a file or a known name, and open it for searching."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from wikidx.corpora.artifacts.unnamed import UnnamedCorpus
from wikidx.corpora.build import StoreOptions
from wikidx.corpora.known.custom import ReadOptions
from wikidx.corpora.known.given import GivenPassage, SplitRule, given_corpus
from wikidx.corpora.resolving import ResolvedCorpus, resolve
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.planning import BuildSpec
from wikidx.indexer.planning import build as build_spec

from .naming import RetrieverName
from .opening import open_searcher

if TYPE_CHECKING:
    from .searcher import LocalSearcher


def build(
    source: str | Path | Iterable[GivenPassage],
    retriever: str = "bm25",
    *,
    name: str | None = None,
    split: SplitRule | None = None,
    device: str = "auto",
    replace: bool = False,
) -> LocalSearcher:
    """Build a corpus with the indexes of a retriever, and open it; what exists is reused, an interrupted build resumes.

    >>> searcher = build(["Thimphu is the capital of Bhutan.", "Lima is the capital of Peru."])
    >>> searcher.search(["Bhutan"], k=1)[0][0].text
    'Thimphu is the capital of Bhutan.'

    Args:
        source: passages, which are texts, records with the fields id, title and text, or ``Passage`` objects (a text, and a record
            without an id, get their position as id, from "0"); or, as in ``idx build``, the path of a file, or a corpus's name.
        retriever: an index name, or several joined with "+"; see ``open_searcher``.
        name: the corpus's name, by which ``open_searcher`` and ``idx`` find it. Passages without a name are deleted when the searcher is
            closed or the process ends; a file without a name gives the corpus its own.
        split: rule by which texts are split into passages of at most 100 words; None: only a file's articles, by "words".
        device: device of encoders and vector indexes: "auto" is the first GPU, else the CPU; see ``EmbedOptions``.
        replace: replace an existing corpus of this name that differs, and its indexes.

    Raises:
        InputError, UnknownNameError: a passage, file, name or device cannot be used.
        ArtifactMismatch: another corpus has this name, and ``replace`` is not set.
        MissingExtraError, DownloadError, StorageError, LockedError, ArtifactError: see ``indexer.planning.build``.
    """
    retriever_name = RetrieverName.parse(retriever)
    retriever_name.check()
    embedding, options = EmbedOptions(device=device), StoreOptions(replace=replace)
    if isinstance(source, str | Path):
        resolved = resolve(str(source), name=name, options=options, reading=ReadOptions(split=split))
    elif name is not None:
        resolved = ResolvedCorpus(given_corpus(source, name, split), options)
    else:
        return _build_unnamed(source, str(retriever_name), split, embedding)
    build_spec(BuildSpec(resolved, retriever_name.parts, embedding))
    return open_searcher(resolved.name, retriever, device=device)


def _build_unnamed(passages: Iterable[GivenPassage], retriever: str, split: SplitRule | None, embedding: EmbedOptions) -> LocalSearcher:
    """Build a corpus that is deleted with its searcher."""
    unnamed = UnnamedCorpus()
    try:
        source = ResolvedCorpus(given_corpus(passages, unnamed.name, split), StoreOptions())
        build_spec(BuildSpec(source, RetrieverName.parse(retriever).parts, embedding))
        searcher = open_searcher(unnamed.name, retriever, device=embedding.device)
    except BaseException:
        unnamed.delete()
        raise
    searcher.call_when_closed(unnamed.delete)
    return searcher
