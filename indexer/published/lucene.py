"""Import of a Lucene index made by Pyserini or Anserini, such as the published ``wikipedia-dpr-100w``, as the index ``lucene`` of a corpus.

The index must be of exactly this corpus. The import checks three conditions. Every document's id is in the corpus, and occurs once. Every
passage with a term has a document; some versions of Anserini omit passages without terms, which no query matches. In a sample, at least
nine documents in ten have as many terms as their passages.

Files are hard-linked where possible, otherwise copied. A link is safe, because Lucene never changes a finished file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.building import ArtifactSpec, BuildResult
from wikidx.base.artifacts.checked_files import build_checked
from wikidx.base.artifacts.durable import file_sha256
from wikidx.base.artifacts.manifest import Manifest, Recipe
from wikidx.base.errors import ArtifactMismatch, InputError
from wikidx.base.progress import Progress, silent
from wikidx.corpora.passage import Passage
from wikidx.corpora.reading.compression import Unchanged, refuse_pointer
from wikidx.corpora.store import PassageStore
from wikidx.indexer.analysis.english import english
from wikidx.indexer.base import NO_ROW
from wikidx.indexer.catalog import PACKAGES, index_ref, reusable_index
from wikidx.indexer.indexes.bm25.similarity import length_code
from wikidx.indexer.indexes.lucene.index import DIRECTORY, KIND, PARAMETERS, ROWS
from wikidx.indexer.indexes.lucene.library import JavaError, LuceneReader

_SHOWN = 3
_SAMPLED = 200  # documents whose lengths are compared
_LOCK_FILE = "write.lock"
_IDS_PER_CALL = 1 << 14
_TOLERATED = 20  # sampled lengths that may differ: indexes vary in quotes, and in the separator of title and text


def import_lucene(corpus: str, source: Path, store: PassageStore, *, force: bool = False, progress: Progress = silent) -> Manifest:
    """Import the Lucene index in the directory ``source`` as the index ``lucene`` of a corpus, unless it is imported already.

    Args:
        corpus: the corpus's name.
        source: folder of the index; its files are not modified.
        store: the corpus's store.
        force: replace an existing index.
        progress: called with (number of documents looked up, number of all documents).

    Raises:
        InputError: there is no readable Lucene index, or it belongs to another corpus.
        ArtifactMismatch: the corpus has another Lucene index.
        MissingExtraError, StorageError, LockedError: see ``call_in_java`` and ``build_checked``.
    """
    ref = index_ref(corpus, KIND.name)
    inputs = {"passages": store.fingerprint, "segments": file_sha256(_segments_file(source))}
    parameters = {**PARAMETERS, "origin": "imported"}
    recipe = Recipe(kind=KIND.name, format_version=KIND.format_version, parameters=parameters, inputs=inputs)

    def find_existing() -> Manifest | None:
        manifest = reusable_index(ref, store, {}, force=force)
        if manifest is not None and manifest.recipe != recipe:
            raise ArtifactMismatch(f"{ref.path} holds another Lucene index ({manifest.sources.get('index', 'built')}): --force replaces it")
        return manifest

    spec = ArtifactSpec(
        recipe=recipe,
        sources={"passages": corpus, "index": str(source.resolve())},
        find_existing=find_existing,
        write=lambda staging: BuildResult(store.fingerprint, _adopt(source, store, staging, progress)),
        packages=PACKAGES,
    )
    return build_checked(ref.path, spec)


def _segments_file(source: Path) -> Path:
    """Return the file that lists the segments of the newest commit.

    Raises:
        InputError: there is no such file.
    """
    files = [file for file in source.glob("segments_*") if file.is_file()]
    if not files:
        raise InputError(f"{source} is no Lucene index: it is no folder with a file segments_N")
    refuse_pointer(source)
    return max(files, key=lambda file: (len(file.name), file.name))  # N is in base 36


def _adopt(source: Path, store: PassageStore, staging: Path, progress: Progress) -> dict[str, int]:
    """Verify an index. Write it and the rows of its documents to ``staging``, and return the counts for the manifest."""
    files = [file for file in source.iterdir() if file.is_file() and file.name != _LOCK_FILE]
    unchanged = Unchanged(files)
    try:
        with closing(LuceneReader(source)) as reader:
            _check_fields(source, reader)
            rows = _document_rows(reader, store, progress)
            _check_coverage(source, rows, reader, store)
            _check_lengths(source, rows, reader, store)
            counts = {"rows": len(store), "documents": reader.n_documents, "searchable": reader.n_searchable}
    except JavaError as error:
        raise InputError(f"{source} cannot be read: {error}") from error
    shutil.rmtree(staging / DIRECTORY, ignore_errors=True)  # left by an interrupted import
    (staging / DIRECTORY).mkdir()
    for file in files:
        _link_or_copy(file, staging / DIRECTORY / file.name)
    unchanged.check()
    (staging / ROWS).write_bytes(rows.data)
    return counts


def _check_fields(source: Path, reader: LuceneReader) -> None:
    """Raise ``InputError`` unless the index has the field for a search, and no deleted documents."""
    options = reader.contents_options()
    if "FREQS" not in options:
        raise InputError(f"{source} needs the field 'contents' with frequencies; it has {options or 'none'}")
    if reader.n_deleted:
        raise InputError(
            f"{source} has {reader.n_deleted:,} deleted documents, which still count in the scores: merge it (IndexCollection -optimize)"
        )


def _document_rows(reader: LuceneReader, store: PassageStore, progress: Progress) -> NDArray[np.int32]:
    """Return the row of each document by its stored id, int32 of shape (documents,); -1 if the store lacks the id."""
    rows = np.empty(reader.n_documents, dtype="<i4")
    for first in range(0, len(rows), _IDS_PER_CALL):
        end = min(first + _IDS_PER_CALL, len(rows))
        rows[first:end] = store.rows_of(reader.ids(first, end))
        progress(end, len(rows))
    return rows


def _check_coverage(source: Path, rows: NDArray[np.int32], reader: LuceneReader, store: PassageStore) -> None:
    """Raise ``InputError`` unless each document matches one passage, and each passage with a term has a document."""
    unknown = np.flatnonzero(rows == NO_ROW)
    if len(unknown):
        ids = [reader.ids(document, document + 1)[0] for document in unknown[:_SHOWN].tolist()]
        raise InputError(f"{source} has {len(unknown):,} documents that are not in the corpus, {_examples(ids)}")
    sorted_rows = np.sort(rows)
    repeated = np.unique(sorted_rows[1:][sorted_rows[1:] == sorted_rows[:-1]])
    if len(repeated):
        raise InputError(f"{source} has {len(repeated):,} passages more than once, {_examples(_ids(store, repeated[:_SHOWN].tolist()))}")
    missing = np.setdiff1d(np.arange(len(store)), rows).tolist()
    rows_with_terms = (row for row in missing if english(_contents(store.get_many([row])[0])))
    examples = list(islice(rows_with_terms, _SHOWN))
    if examples:
        raise InputError(f"{source} lacks {len(missing):,} of the corpus's {len(store):,} passages, {_examples(_ids(store, examples))}")


def _check_lengths(source: Path, rows: NDArray[np.int32], reader: LuceneReader, store: PassageStore) -> None:
    """Raise ``InputError`` if more than a tenth of the sampled documents have another number of terms than their passages."""
    documents = np.unique(np.linspace(0, len(rows) - 1, min(_SAMPLED, len(rows)), dtype=np.int64)).tolist()
    expected = [length_code(len(english(_contents(passage)))) for passage in store.get_many(rows[documents])]
    differing = [
        document for document, actual, length in zip(documents, reader.lengths(documents), expected, strict=True) if actual != length
    ]
    if len(differing) * _SAMPLED > _TOLERATED * len(documents):
        raise InputError(
            f"{source} has other texts or another analysis than the corpus: of {len(documents)} documents {len(differing)} have another "
            f"number of terms, {_examples(_ids(store, rows[differing[:_SHOWN]].tolist()))}"
        )


def _contents(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}"


def _ids(store: PassageStore, rows: Sequence[int]) -> list[str]:
    return [passage.id for passage in store.get_many(rows)]


def _examples(ids: Sequence[str]) -> str:
    return f"such as {', '.join(map(repr, ids))}"


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, no support of links, or another user's file
        shutil.copyfile(source, target)
