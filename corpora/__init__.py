"""Corpora: named collections of passages, and their stores on disk. This package imports none of the other three.

known/      wiki2018, wiki2020, sample, users' files     store/      PassageStore on LMDB
reading/    dump files -> passages, with file and line   fetching/   source files, downloaded or local
artifacts/  atomic, resumable builds of directories      passage     Passage(id, title, text), BadRecord, SourceFile
corpus      Corpus: files, reader, number of passages    build       builds and opens the store of a corpus
resolving   name or file -> Corpus                       estimate    size of a corpus before it is built
errors      the IdxError tree                            registry    name -> "module:attribute"
progress    progress callbacks of long operations        validation  option dataclasses, validated by pydantic
progress_display  progress bars and lines on standard error   machine/  compiled inner loops
"""

from .errors import IdxError
from .passage import Passage, text_key

__all__ = ["CORPORA", "IdxError", "Passage", "text_key"]

CORPORA = {
    "sample": "wikidx.corpora.known.sample:CORPUS",
    "wiki2018": "wikidx.corpora.known.wiki2018:CORPUS",
    "wiki2020": "wikidx.corpora.known.wiki2020:CORPUS",
}
