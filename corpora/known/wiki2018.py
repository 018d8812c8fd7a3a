"""The DPR Wikipedia: English Wikipedia of 20 December 2018 in 21,015,324 passages of 100 words (psgs_w100.tsv).

Source of the address: facebookresearch/DPR, dpr/data/download_data.py. Source of size, md5 and count: allenai/ir_datasets, dpr-w100;
Facebook publishes no checksum. Ids are "1" to "21015324". Rows are read with ``csv.reader``, as in Contriever. DPR's own reader also strips
quotes at the edges of the text and prefixes ids with ``wiki:``. The corpus wiki-18 of FlashRAG and Search-R1 numbers the same rows from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from wikidx.base.net.download import SourceFile
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import LocatedPassage, OnBad
from wikidx.corpora.reading.readers import read_tsv


def _read(files: Sequence[Path], on_bad: OnBad) -> Iterator[LocatedPassage]:
    for file in files:
        yield from read_tsv(file, on_bad)


CORPUS = Corpus(
    name="wiki2018",
    summary="DPR Wikipedia of December 2018, 100-word passages (CC BY-SA)",
    files=(
        SourceFile(
            name="psgs_w100.tsv.gz",
            url="https://dl.fbaipublicfiles.com/dpr/wikipedia_split/psgs_w100.tsv.gz",
            n_bytes=4_694_541_059,
            md5="612fe66e0b6b41ee28f806140226c563",
        ),
    ),
    read=_read,
    n_passages=21_015_324,
    estimate=(21_015_324, 640),
    article_url="https://en.wikipedia.org/wiki/{title}",
    reading={"format": "tsv"},
)
