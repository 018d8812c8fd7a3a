"""Shell completion of names, and the arguments and options that use it."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import typer


def corpus_argument(help_: str) -> Any:  # noqa: ANN401 - as typer's own
    """Return the argument ``CORPUS``, with completion of built corpora."""
    return typer.Argument(metavar="CORPUS", help=help_, autocompletion=built_corpus)


def corpus_option(help_: str) -> Any:  # noqa: ANN401
    """Return the option ``--corpus``, with completion of built corpora."""
    return typer.Option("--corpus", metavar="CORPUS", help=help_, autocompletion=built_corpus)


def retriever_option(help_: str) -> Any:  # noqa: ANN401
    """Return the option ``--retriever``, with completion of built indexes."""
    return typer.Option("--retriever", "-r", metavar="NAME", help=help_, autocompletion=retriever)


def index(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the matching indexes of the corpora on the command line, or of all built corpora if the line names none."""
    return _matching(incomplete, _built_indexes(ctx))


def retriever(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the completions of a retriever's name. After a ``+``, they add an index that the name does not yet contain."""
    from wikidx.indexer.naming import canonical_name
    from wikidx.retrievers.pipelines.saved import saved_pipelines

    joined, plus, last = incomplete.rpartition("+")
    names = [name for name in _built_indexes(ctx) if name not in map(canonical_name, joined.split("+"))]
    if not plus:
        names += [name for corpus in _named_corpora(ctx) for name in saved_pipelines(corpus)]
    return [f"{joined}{plus}{name}" for name in _matching(last, names)]


def questions(incomplete: str) -> list[str]:
    """Return the matching published sets of questions; if there are none, the shell completes file names."""
    from wikidx.runtimes.questions import published_sets

    return _matching(incomplete, [name for entry in published_sets() for name in (entry.name, entry.key)])


def words(*choices: str) -> Callable[[str], list[str]]:
    """Return a completer of given words."""
    return lambda incomplete: _matching(incomplete, choices)


def _names_in(*places: str) -> Callable[[str], list[str]]:
    """Return a completer of the names in tables, or from functions, given as ``module:NAME``; it imports their modules when called."""

    def complete(incomplete: str) -> list[str]:
        tables = (pkgutil.resolve_name(f"wikidx.{place}") for place in places)
        return _matching(incomplete, [name for table in tables for name in (table() if callable(table) else table)])

    return complete


built_corpus = _names_in("corpora.resolving:built_names")
any_corpus = _names_in("corpora.resolving:known_names", "corpora.resolving:built_names")  # else the shell completes file names
encoder = _names_in("indexer.naming:encoder_names")
kind_of_index = _names_in("indexer.naming:vector_kinds")
method = _names_in("runtimes.methods:method_names")
trained_method = _names_in("runtimes.training:BUILDERS")


def _built_indexes(ctx: typer.Context) -> Sequence[str]:
    """Return the indexes of the corpora named before the incomplete word, or of all built corpora if none is named.

    While an option's value is being completed, the arguments before the option are in ``ctx.args``, not in ``ctx.params``.
    """
    from wikidx.indexer.catalog import built_indexes

    return [name for corpus in _named_corpora(ctx) for name in built_indexes(corpus)]


def _named_corpora(ctx: typer.Context) -> Sequence[str]:
    from wikidx.corpora.resolving import built_names

    built = built_names()
    before = [ctx.params.get("corpus"), *(ctx.params.get("corpora") or ()), *ctx.args]
    return [name for name in built if name in before] or built


def _matching(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
