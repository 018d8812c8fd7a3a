"""An open Lucene directory. One call into Java returns the results of several queries, or the ids of many documents.

Scores are those of Lucene's ``BM25Similarity``. As in Anserini, a query has one clause per distinct term, weighted by the term's count in
the query. Unlike Anserini's searchers, this reader does not round scores, and breaks ties by document number, not by id.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import InputError
from wikidx.indexer.base import Scores

from .jvm import as_interface, bind, chain, java_class, method, on_java_thread

LUCENE = "org.apache.lucene"
K1 = 0.9
B = 0.4
STEMMER = "porter"
CONTENTS = "contents"  # the searched field
ID = "id"

_QUERY = f"{LUCENE}.search.Query"
_TOP_DOCS = f"{LUCENE}.search.TopDocs"
_ANALYZER = f"{LUCENE}.analysis.Analyzer"
_DOCUMENT = f"{LUCENE}.document.Document"
_GENERATOR = "io.anserini.search.query.BagOfWordsQueryGenerator"
_STRING = "java.lang.String"
_FUNCTION = "java.util.function.Function"

_MAX_CLAUSES = 2**31 - 1
_CACHED_DEPTHS = 8

_unused = deque[Any]()  # Java readers whose Python object is gone; the next opening closes them: a finalizer must not wait for Java


class DocumentHits(NamedTuple):
    """Results of one query, best first: Lucene's document numbers (int64) and scores (float32), both of shape (hits,)."""

    documents: NDArray[np.int64]
    scores: Scores


class LuceneReader:
    """An open Lucene directory. Thread-safe. Methods raise ``JavaError`` for corrupt files.

    Attributes:
        n_documents: number of documents, deleted ones included.
        n_deleted: number of deleted documents.
        n_searchable: number of documents with at least one term.
    """

    @on_java_thread
    def __init__(self, path: Path) -> None:
        while _unused:
            _unused.popleft().close()
        self._reader = java_class(f"{LUCENE}.index.DirectoryReader").open(open_directory(path))
        weakref.finalize(self, _unused.append, self._reader).atexit = False
        self.n_documents: int = self._reader.maxDoc()
        self.n_deleted: int = self._reader.numDeletedDocs()
        self.n_searchable: int = self._reader.getDocCount(CONTENTS)
        searcher_class = java_class(f"{LUCENE}.search.IndexSearcher")
        searcher_class.setMaxClauseCount(_MAX_CLAUSES)
        self._searcher = searcher_class(self._reader.getContext())
        self._searcher.setSimilarity(java_class(f"{LUCENE}.search.similarities.BM25Similarity")(K1, B))
        self._analyzer = java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newStemmingInstance(STEMMER)
        self._search = functools.lru_cache(maxsize=_CACHED_DEPTHS)(self._search_function)

    @on_java_thread
    def close(self) -> None:
        """Close the files; the reader cannot be used any more."""
        self._reader.close()

    @on_java_thread
    def search(self, queries: Sequence[str], depth: int) -> list[DocumentHits]:
        """Return the results of each query, at most ``depth`` documents. Ties are in ascending order of document numbers."""
        texts = java_class("java.util.Arrays").asList(*map(_java_text, queries))
        answers = json.loads(_to_json(texts.parallelStream().map(self._search(depth)).toList()))
        return [
            DocumentHits(np.array([hit["doc"] for hit in hits], dtype=np.int64), np.array([hit["score"] for hit in hits], dtype=np.float32))
            for hits in (answer["scoreDocs"] for answer in answers)
        ]

    def _search_function(self, depth: int) -> Any:  # noqa: ANN401 - a Java Function
        """Return a Java function that maps a query's text to its ``depth`` best documents."""
        parse = bind(method(_GENERATOR, "buildQuery", _QUERY, _STRING, _ANALYZER, _STRING), 0, _generator(), CONTENTS, self._analyzer)
        search = bind(method(f"{LUCENE}.search.IndexSearcher", "search", _TOP_DOCS, _QUERY, "int"), 0, self._searcher)
        return as_interface(_FUNCTION, chain(parse, bind(search, 1, java_class("java.lang.Integer")(depth))))

    @on_java_thread
    def ids(self, first: int, end: int) -> list[str | None]:
        """Return the stored ids of the documents from ``first`` to before ``end``; None for a document without an id."""
        only_id = java_class("java.util.Collections").singleton(ID)
        read = method(f"{LUCENE}.index.StoredFields", "document", _DOCUMENT, "int", "java.util.Set")
        read = bind(bind(read, 2, only_id), 0, self._reader.storedFields())
        id_of = chain(read, bind(method(_DOCUMENT, "get", _STRING, _STRING), 1, ID))
        numbers = java_class("java.util.stream.IntStream").range(first, end)
        ids = numbers.mapToObj(as_interface("java.util.function.IntFunction", id_of)).toList()
        stored: list[str | None] = json.loads(_to_json(ids))
        return stored

    @on_java_thread
    def lengths(self, documents: Sequence[int]) -> list[int]:
        """Return the length byte of each document: its number of terms as Lucene encodes it. ``documents`` must ascend."""
        norms = java_class(f"{LUCENE}.index.MultiDocValues").getNormValues(self._reader, CONTENTS)
        return [norms.longValue() if norms.advanceExact(document) else 0 for document in documents]

    @on_java_thread
    def length_of(self, text: str) -> int:
        """Return the length byte of a document with this text; see ``lengths``."""
        n_terms = java_class("io.anserini.analysis.AnalyzerUtils").analyze(self._analyzer, _java_text(text)).size()
        code: int = java_class(f"{LUCENE}.util.SmallFloat").intToByte4(n_terms)
        return code

    @on_java_thread
    def fields(self) -> dict[str, str]:
        """Return the index options of each indexed field by its name, such as DOCS_AND_FREQS."""
        infos = java_class(f"{LUCENE}.index.FieldInfos").getMergedFieldInfos(self._reader).iterator()
        fields = {}
        while infos.hasNext():
            info = infos.next()
            fields[info.name] = info.getIndexOptions().toString()
        return fields

    @on_java_thread
    def files(self) -> list[str]:
        """Return the names of the index's files. The directory may contain other files."""
        return list(self._reader.getIndexCommit().getFileNames().toArray())


def open_directory(path: Path) -> Any:  # noqa: ANN401 - a Java object
    """Return Lucene's object for a directory; create a missing directory. It must run within ``call_in_java``.

    Raises:
        InputError: the path cannot be represented in Java.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{os.fsencode(path)!r} is not in the locale's {sys.getfilesystemencoding()}: Lucene cannot open it") from error
    return java_class(f"{LUCENE}.store.FSDirectory").open(java_class("java.nio.file.Paths").get(str(path)))


@functools.cache
def _generator() -> Any:  # noqa: ANN401 - a Java object
    return java_class(_GENERATOR)()


def _java_text(text: str) -> str:
    """Return the text with "?" in place of lone surrogates, which cannot be passed to Java. Terms contain neither."""
    return text.encode("utf-16-le", "replace").decode("utf-16-le")


def _to_json(value: Any) -> str:  # noqa: ANN401 - a Java object
    """Return a Java object as JSON. Its numbers convert back to exactly the same floats."""
    text: str = java_class("com.fasterxml.jackson.databind.ObjectMapper")().writeValueAsString(value)
    return text
