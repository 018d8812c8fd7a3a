"""Corpora: named collections of passages, and the store that holds them on disk. Imports nothing of the packages above it.

errors        the IdxError tree                     passage     Passage(id, title, text), BadRecord, SourceFile
registry      name -> "module:attribute"            corpus      Corpus: files, reading rule, count
home          the data home, names allowed in it    artifacts   what a manifest.json says, and whether to believe it
staging       locks, sealing, renaming, resuming    durable     files that outlive a crash, checksums
download      resumable, verified fetch             sources     where a corpus's files are
compression   plain, gzip, bzip2, zstd alike        readers     dump files -> located passages, one reader a format
splitters     article -> passages, by named rules   store/      PassageStore on LMDB
build         corpus -> store on disk, open again   forecast    what to expect of a corpus before it is read
progress      how long work reports; amounts        validation  dataclasses of options, checked by pydantic
resolving     a name or a file -> its corpus, known, built or the user's own
wiki2018  wiki2020  sample/  custom                 one corpus each; custom: a file of the user's own
"""

from .errors import IdxError
from .passage import Passage, text_key

__all__ = ["CORPORA", "IdxError", "Passage", "text_key"]

CORPORA = {
    "sample": "corpora.sample:CORPUS",
    "wiki2018": "corpora.wiki2018:CORPUS",
    "wiki2020": "corpora.wiki2020:CORPUS",
}
