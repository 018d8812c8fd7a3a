"""Corpora: named collections of passages, and their store on disk. Imports none of the other packages.

known/      wiki2018, wiki2020, sample, a user's own file          store/     PassageStore on LMDB
reading/    dump files -> located passages                          fetching/  source files, from the network or a copy
artifacts/  directories that are staged, sealed and renamed         passage    Passage(id, title, text), BadRecord, SourceFile
corpus      Corpus: files, reading rule, count                      build      corpus -> store on disk, and opening it
resolving   a name or a file -> its corpus, known or built          estimate   estimate of a corpus before it is read
errors      the IdxError tree                                       registry   name -> "module:attribute"
progress    progress callbacks of long operations                   validation option dataclasses, validated by pydantic
"""

from .errors import IdxError
from .passage import Passage, text_key

__all__ = ["CORPORA", "IdxError", "Passage", "text_key"]

CORPORA = {
    "sample": "wikidx.corpora.known.sample:CORPUS",
    "wiki2018": "wikidx.corpora.known.wiki2018:CORPUS",
    "wiki2020": "wikidx.corpora.known.wiki2020:CORPUS",
}
