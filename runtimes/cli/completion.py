"""What a shell completes: names of corpora, retrievers, methods, encoders and kinds of index that begin with what is typed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import typer


def any_corpus(incomplete: str) -> list[str]:
    """Return the corpora that idx knows or has built; where none fits, the shell offers files."""
    from wikidx.corpora import CORPORA
    from wikidx.corpora.resolving import built_names

    return _fitting(incomplete, [*CORPORA, *built_names()])


def built_corpus(incomplete: str) -> list[str]:
    """Return the corpora that are built."""
    from wikidx.corpora.resolving import built_names

    return _fitting(incomplete, built_names())


def index(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the indexes of the corpora that the command line names; of all that are built if it names none."""
    return _fitting(incomplete, _built_indexes(ctx))


def retriever(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the indexes that can be searched, also behind a ``+``, with which several are joined."""
    from wikidx.retrievers.naming import RetrieverName

    joined, plus, last = incomplete.rpartition("+")
    names = [name for name in _built_indexes(ctx) if name not in RetrieverName.parse(joined).parts]
    return [f"{joined}{plus}{name}" for name in _fitting(last, names)]


def method(incomplete: str) -> list[str]:
    """Return the methods."""
    from wikidx.runtimes.methods import METHODS

    return _fitting(incomplete, METHODS)


def trained_method(incomplete: str) -> list[str]:
    """Return the methods that there is training data for."""
    from wikidx.runtimes.training import BUILDERS

    return _fitting(incomplete, BUILDERS)


def encoder(incomplete: str) -> list[str]:
    """Return the encoders."""
    from wikidx.indexer import ENCODERS

    return _fitting(incomplete, ENCODERS)


def kind_of_index(incomplete: str) -> list[str]:
    """Return the kinds of index over vectors."""
    from wikidx.indexer import VECTOR_INDEXES

    return _fitting(incomplete, VECTOR_INDEXES)


def _built_indexes(ctx: typer.Context) -> Sequence[str]:
    """Return the indexes of the corpora that stand before the word, or of all that are built.

    While the value of an option is typed, the arguments before it are not assigned to parameters yet.
    """
    from wikidx.corpora.resolving import built_names
    from wikidx.indexer.catalog import built_indexes

    built = built_names()
    before = [ctx.params.get("corpus"), *(ctx.params.get("corpora") or ()), *ctx.args]
    return [name for corpus in [one for one in built if one in before] or built for name in built_indexes(corpus)]


def _fitting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
