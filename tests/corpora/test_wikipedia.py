from __future__ import annotations

import csv
import dataclasses
import gzip
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests.loopback import serving
from wikidx.base.errors import DownloadError, InputError
from wikidx.corpora.build import StoreOptions, build_store, open_store, store_manifest
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.known import wikipedias
from wikidx.corpora.passage import Passage


def smaller(corpus: Corpus, n_passages: int | None, *files: Path) -> Corpus:
    """Return a corpus that differs in nothing but the count, and the sizes and checksums of its files."""
    sources = tuple(
        dataclasses.replace(source, n_bytes=file.stat().st_size, md5=hashlib.md5(file.read_bytes()).hexdigest() if source.md5 else None)
        for source, file in zip(corpus.files, files, strict=True)
    )
    return dataclasses.replace(corpus, files=sources, n_passages=n_passages)


@pytest.fixture
def mirror_2018(shared_data: Path, tmp_path: Path) -> Path:
    """A mirror's folder with real rows of psgs_w100 under the published path."""
    folder = tmp_path / "mirror"
    (folder / "dpr" / "wikipedia_split").mkdir(parents=True)
    shutil.copy(shared_data / "psgs_w100_rows" / "psgs_w100_subset.tsv.gz", folder / "dpr/wikipedia_split/psgs_w100.tsv.gz")
    return folder


def test_wiki2018_builds_whole_from_a_mirror(mirror_2018: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = mirror_2018 / "dpr/wikipedia_split/psgs_w100.tsv.gz"
    corpus = smaller(wikipedias.WIKI2018, 4486, file)
    with serving(mirror_2018) as address:
        monkeypatch.setenv("IDX_MIRROR", address)
        build_store(corpus, StoreOptions())
    with gzip.open(file, "rt", encoding="utf-8", newline="") as opened:
        rows = list(csv.reader(opened, delimiter="\t"))[1:]
    store = open_store("wiki2018")
    assert list(store.read()) == [Passage(id_, title, text) for id_, text, title in rows]
    assert store.rows_of(["4336"]).tolist() == [0]
    assert store_manifest("wiki2018").recipe.inputs == {"psgs_w100.tsv.gz": hashlib.sha256(file.read_bytes()).hexdigest()}
    build_store(corpus, StoreOptions())  # the mirror is gone: what is built is not fetched again


def test_wiki2018_from_a_local_copy_is_verified(mirror_2018: Path) -> None:
    file = mirror_2018 / "dpr/wikipedia_split/psgs_w100.tsv.gz"
    with pytest.raises(DownloadError, match=r"is not psgs_w100\.tsv\.gz: expected 4694541059 bytes"):
        build_store(wikipedias.WIKI2018, StoreOptions(source=file))
    with pytest.raises(InputError, match="4,486 passages were read, not 4,485"):
        build_store(smaller(wikipedias.WIKI2018, 4485, file), StoreOptions(source=file))
    build_store(smaller(wikipedias.WIKI2018, 4486, file), StoreOptions(source=file))
    assert len(open_store("wiki2018")) == 4486


def test_a_subset_of_a_local_copy_is_not_verified(mirror_2018: Path) -> None:
    build_store(wikipedias.WIKI2018, StoreOptions(source=mirror_2018 / "dpr/wikipedia_split/psgs_w100.tsv.gz", limit=100))
    assert len(open_store("wiki2018@100")) == 100


def test_wiki2020_builds_whole_from_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mirror" / "atlas/corpora/wiki/enwiki-dec2020"
    folder.mkdir(parents=True)
    text = [{"id": str(n), "title": "Ada", "section": "Life" if n else "", "text": f"text {n}"} for n in range(3)]
    infobox = [{"id": "0", "title": "Ada", "text": "born: 1815; died: 1852"}]
    for name, records in (("text-list-100-sec.jsonl", text), ("infobox.jsonl", infobox)):
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    corpus = smaller(wikipedias.WIKI2020, None, folder / "text-list-100-sec.jsonl", folder / "infobox.jsonl")
    with serving(tmp_path / "mirror") as address:
        monkeypatch.setenv("IDX_MIRROR", address)
        build_store(corpus, StoreOptions())
    assert list(open_store("wiki2020").read()) == [
        Passage("0", "Ada", "text 0"),
        Passage("1", "Ada: Life", "text 1"),
        Passage("2", "Ada: Life", "text 2"),
        Passage("infobox:0", "Ada", "born: 1815; died: 1852"),
    ]


def test_published_facts() -> None:
    (psgs,) = wikipedias.WIKI2018.files
    assert (psgs.n_bytes, psgs.md5, wikipedias.WIKI2018.n_passages) == (4_694_541_059, "612fe66e0b6b41ee28f806140226c563", 21_015_324)
    assert [source.n_bytes for source in wikipedias.WIKI2020.files] == [19_833_317_807, 2_186_510_109]
