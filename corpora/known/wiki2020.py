"""The Atlas Wikipedia of December 2020: 31.5 million text passages and 4.1 million infobox passages.

Source of addresses and approximate counts: facebookresearch/atlas, README. Source of sizes: the server's Content-Length. No checksum is
published, so that later downloads are checked against the sha256 of the first. Titles are ``"<title>: <section>"`` as in atlas,
src/index_io.py. Both files number their records from 0, so that infobox ids become ``infobox:<id>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from wikidx.base.net.download import SourceFile
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import LocatedPassage, OnBad
from wikidx.corpora.reading.readers import read

_FOLDER = "https://dl.fbaipublicfiles.com/atlas/corpora/wiki/enwiki-dec2020"


def _read(files: Sequence[Path], on_bad: OnBad) -> Iterator[LocatedPassage]:
    text, infobox = files
    yield from read(text, "jsonl", on_bad)
    for passage, file, line in read(infobox, "jsonl", on_bad):
        yield LocatedPassage(passage._replace(id=f"infobox:{passage.id}"), file, line)


CORPUS = Corpus(
    name="wiki2020",
    summary="Atlas Wikipedia of December 2020, text and infobox passages (CC BY-SA)",
    files=(
        SourceFile(name="text-list-100-sec.jsonl", url=f"{_FOLDER}/text-list-100-sec.jsonl", n_bytes=19_833_317_807),
        SourceFile(name="infobox.jsonl", url=f"{_FOLDER}/infobox.jsonl", n_bytes=2_186_510_109),
    ),
    read=_read,
    n_passages=None,
    estimate=(35_600_000, 600),
    article_url="https://en.wikipedia.org/wiki/Special:Search?fulltext=1&search={article}",  # jumps to no article: the title may be cut
    reading={"format": "jsonl", "infobox_ids": "infobox:<id>"},
)
