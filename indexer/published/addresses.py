"""Addresses of published vectors of the known corpora, by encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wikidx.corpora.artifacts.home import downloads_path
from wikidx.corpora.fetching.sources import download_all, downloaded_bytes
from wikidx.corpora.passage import SourceFile
from wikidx.corpora.progress import Progress, silent

from .formats import Embeddings

_FACEBOOK = "https://dl.fbaipublicfiles.com"
_HUGGING_FACE = "https://huggingface.co/datasets"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedVectors:
    """Published vectors and their format.

    Attributes:
        files: files to download, in reading order.
        format: one of ``formats.FORMATS``.
        download_bytes: size of all files; computed from the size of the vectors if it is not published.
        stored_bytes: bytes of one component.
        n_missing: number of passages without a vector.
    """

    files: tuple[SourceFile, ...]
    format: str
    download_bytes: int
    stored_bytes: int
    n_missing: int = 0

    def missing_bytes(self, corpus: str, encoder: str) -> int:
        """Return the approximate number of bytes still to be downloaded."""
        folder = downloads_path(corpus) / encoder
        is_whole = all((folder / file.name).is_file() for file in self.files)
        return 0 if is_whole else max(0, self.download_bytes - sum(downloaded_bytes(file, folder) for file in self.files))


def _contriever(model: str) -> PublishedVectors:
    """Return Contriever's vectors. facebookresearch/contriever's README publishes no sizes or checksums."""
    url = f"{_FACEBOOK}/contriever/embeddings/{model}/wikipedia_embeddings.tar"
    file = SourceFile(name="wikipedia_embeddings.tar", url=url)
    return PublishedVectors(files=(file,), format="contriever", download_bytes=32_600_000_000, stored_bytes=2)


_DPR_SINGLE_NQ = PublishedVectors(  # facebookresearch/DPR, dpr/data/download_data.py; missing vectors: its issue 250
    files=tuple(
        SourceFile(name=f"wiki_passages_{number}", url=f"{_FACEBOOK}/dpr/data/wiki_encoded/single/nq/wiki_passages_{number}")
        for number in range(50)
    ),
    format="dpr",
    download_bytes=67_000_000_000,
    stored_bytes=4,
    n_missing=24,
)
_DPR_MULTISET = PublishedVectors(  # castorini/pyserini, pyserini/resources/prebuilt-indexes/faiss/wikipedia-faiss.json
    files=(
        SourceFile(
            name="faiss.wikipedia-dpr-100w.dpr_multi.20200127.f403c3.tar.gz",
            url="https://rgw.cs.uwaterloo.ca/pyserini/indexes/faiss/faiss.wikipedia-dpr-100w.dpr_multi.20200127.f403c3.tar.gz",
            n_bytes=59_836_766_732,
            md5="fe307ef2e60ab6e6f3ad66e24a4144ae",
        ),
    ),
    format="pyserini",
    download_bytes=59_836_766_732,
    stored_bytes=4,
    n_missing=4,
)
_GTR_XXL = PublishedVectors(  # princeton-nlp/ALCE, README
    files=(
        SourceFile(
            name="gtr_wikipedia_index.pkl",
            url=f"{_HUGGING_FACE}/princeton-nlp/gtr-t5-xxl-wikipedia-psgs_w100-index/resolve/main/gtr_wikipedia_index.pkl",
        ),
    ),
    format="array",
    download_bytes=32_279_537_900,
    stored_bytes=2,
)
_E5 = PublishedVectors(  # PeterGriffinJin/Search-R1, docs/retriever.md and scripts/download.py
    files=tuple(
        SourceFile(name=name, url=f"{_HUGGING_FACE}/PeterJinGo/wiki-18-e5-index/resolve/main/{name}") for name in ("part_aa", "part_ab")
    ),
    format="flat",
    download_bytes=64_559_075_373,
    stored_bytes=4,
)

PUBLISHED: Mapping[tuple[str, str], PublishedVectors] = {
    ("wiki2018", "contriever"): _contriever("contriever-msmarco"),
    ("wiki2018", "contriever-base"): _contriever("contriever"),
    ("wiki2018", "dpr"): _DPR_SINGLE_NQ,
    ("wiki2018", "dpr-multiset"): _DPR_MULTISET,
    ("wiki2018", "gtr-xxl"): _GTR_XXL,
    ("wiki2018", "e5"): _E5,
}


def fetch(corpus: str, encoder: str, published: PublishedVectors, progress: Progress = silent) -> Embeddings:
    """Return the files of published vectors, downloading missing ones.

    Args:
        corpus: the corpus's name, without the limit of a subset.
        encoder: the encoder's name.
        published: published vectors of the corpus and the encoder.
        progress: called with (bytes downloaded, all bytes) for each file.

    Raises:
        DownloadError, StorageError, LockedError: a file cannot be downloaded, or differs from the published one.
    """
    files = download_all(published.files, downloads_path(corpus) / encoder, progress)
    return Embeddings(
        f"what is published of '{encoder}'",
        published.format,
        files=tuple(file.path for file in files),
        origins=tuple(file.origin for file in files),
        sha256=tuple(file.sha256 for file in files),
    )
