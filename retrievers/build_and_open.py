"""Building of a corpus and of a retriever's indexes in one call, which returns an open searcher."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from os import PathLike, fsdecode
from typing import TYPE_CHECKING, Literal, Unpack, cast

from wikidx.base.artifacts.home import check_new_name
from wikidx.base.errors import InputError
from wikidx.base.plugins import name_of
from wikidx.base.progress import silent_steps
from wikidx.base.progress_display import show_steps
from wikidx.corpora.build import StoreOptions
from wikidx.corpora.known.custom import ReadOptions
from wikidx.corpora.known.python_values import GivenPassage, given_corpus
from wikidx.corpora.reading.fields import GivenFields, field_names
from wikidx.corpora.resolving import ResolvedCorpus, resolve
from wikidx.corpora.unnamed import UnnamedCorpus
from wikidx.indexer.build_spec import BuildSpec
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.planning import build as build_spec
from wikidx.indexer.planning import splitting_tokenizer

from .naming import RetrieverName
from .opening import OpenCorpora

if TYPE_CHECKING:
    from .searcher import LocalSearcher


def build(  # noqa: PLR0913
    source: str | PathLike[str] | Sequence[PathLike[str]] | Iterable[GivenPassage],
    retriever: str = "bm25",
    *,
    name: str | None = None,
    split: str | None = None,
    file_format: str | None = None,
    on_error: Literal["fail", "skip"] = "fail",
    device: str = "auto",
    replace: bool = False,
    show_progress: bool = True,
    **fields: Unpack[GivenFields],
) -> LocalSearcher:
    """Build a corpus and the indexes of a retriever, and open them; finished stores and indexes are reused, interrupted builds resumed.

    >>> searcher = build(["Thimphu is the capital of Bhutan.", "Lima is the capital of Peru."])
    >>> searcher.search(["Bhutan"], k=1)[0][0].text
    'Thimphu is the capital of Bhutan.'

    Args:
        source: passages or a table (see ``given_corpus``), the path of a file or folder, several as ``Path``, or the name of a corpus.
        retriever: an index name, or several joined with "+"; see ``open_searcher``.
        name: name for the corpus. None: the file's; given passages are deleted when the searcher is closed or the process ends.
        split: rule that splits documents, such as "words:100", that of a file of whole articles, or "tokens:256:32"; see ``Split.parse``.
        file_format: format of a file, as a built-in's or a plug-in's name, or the plug-in's reference. None: detected from the content.
        on_error: "skip" leaves out unusable records of a file, and lists them in the store's ``skipped.jsonl``.
        device: device of encoders and vector indexes; "auto" is the first GPU, else the CPU.
        replace: replace an existing corpus of this name if it differs, and its indexes.
        show_progress: show progress on standard error: as bars on a terminal, otherwise as lines, at most one in ten seconds.
        fields: id_field, title_field, text_field: the fields of records that make a passage; found by well-known names if left out.

    Raises:
        InputError, UnknownNameError: a passage, file, name or device cannot be used.
        ArtifactMismatch: a different corpus has this name, and ``replace`` is not set.
        MissingExtraError, DownloadError, StorageError, LockedError, ArtifactError: see ``indexer.planning.build``.
    """
    (retriever_name := RetrieverName.parse(retriever)).check()
    options = StoreOptions(replace=replace, skip_bad=_skips(on_error))
    build_resolved = partial(_build, retriever=retriever_name, embedding=EmbedOptions(device=device), show_progress=show_progress)
    tokenizer = splitting_tokenizer(retriever_name.parts)
    if (paths := _paths(source)) is not None:
        chosen = file_format and name_of("format", file_format)
        reading = ReadOptions(file_format=chosen, split=split, tokenizer=tokenizer, fields=field_names(**fields))
        return build_resolved(resolve(paths, name=name, options=options, reading=reading))
    if file_format is not None or on_error != "fail":
        raise InputError("file_format and on_error are for files, and the passages are given: leave them out")
    given = partial(given_corpus, cast(Iterable[GivenPassage], source), split=split, tokenizer=tokenizer, fields=field_names(**fields))
    if name is None:
        return _build_unnamed(lambda name: build_resolved(ResolvedCorpus(given(name), options)))
    return build_resolved(ResolvedCorpus(given(check_new_name(name)), options))


def _paths(source: object) -> str | list[str] | None:
    """Return a path, a name or a list of path objects as texts; None for passages."""
    if isinstance(source, str | PathLike):
        return fsdecode(source)
    are_paths = isinstance(source, list | tuple) and source and all(isinstance(path, PathLike) for path in source)
    return [*map(fsdecode, source)] if are_paths and isinstance(source, list | tuple) else None


def _skips(on_error: str) -> bool:
    if on_error not in ("fail", "skip"):
        raise InputError(f"on_error is {on_error!r}: use 'fail' or 'skip'")
    return on_error == "skip"


def _build(source: ResolvedCorpus, retriever: RetrieverName, embedding: EmbedOptions, *, show_progress: bool) -> LocalSearcher:
    """Build and open a corpus and the indexes of a retriever."""
    with show_steps() if show_progress else nullcontext(silent_steps) as step:
        building = build_spec(BuildSpec(source, retriever.parts, embedding), step)
    opened = OpenCorpora(device=embedding.device)
    opened.stores[source.name] = building.store
    return opened.searcher(source.name, retriever)


def _build_unnamed(build_named: Callable[[str], LocalSearcher]) -> LocalSearcher:
    """Build a corpus that is deleted with its searcher, by a function of its name."""
    unnamed = UnnamedCorpus()
    try:
        searcher = build_named(unnamed.name)
    except BaseException:
        unnamed.delete()
        raise
    searcher.call_when_closed(unnamed.delete)
    searcher.reopen = None
    return searcher
