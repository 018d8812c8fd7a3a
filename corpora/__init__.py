"""Corpora: named collections of passages, and their stores on disk. Of the others it imports only ``wikidx.base``.

known/      wiki2018, wiki2020, sample, users' files     store/      PassageStore on LMDB
reading/    dump files -> passages, with file and line   sources     source files, downloaded or local
extracting/ documents -> text, pages and headings        gathering   files of folders, globs and archives
unpacking   archives -> folders, within limits           hub         data sets of Hugging Face
passage     Passage(id, title, text), BadRecord          corpus      Corpus: files, reader, number of passages
build       builds and opens the store of a corpus       resolving   name or file -> Corpus
size_estimate  of a corpus before it is built            plugged     corpora and readers by the user's code
unnamed     corpora that end with the process that built them
"""

if __name__ != "wikidx.corpora":
    raise ImportError("this folder is wikidx.corpora: import it by that name")

from wikidx.base.errors import IdxError

from .passage import Passage, text_key

__all__ = ["CORPORA", "IdxError", "Passage", "text_key"]

CORPORA = {
    "sample": "wikidx.corpora.known.sample:CORPUS",
    "wiki2018": "wikidx.corpora.known.wikipedias:WIKI2018",
    "wiki2020": "wikidx.corpora.known.wikipedias:WIKI2020",
}
