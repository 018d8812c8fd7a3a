"""FAISS indexes on one or several GPUs, from the files of ``flat-fp16``, ``ivf`` and ``ivfpq``; needs the extra ``gpu``.

A GPU's copy is made page by page from the mapped file, never through a float32 copy of the whole, and only if the index fits by
estimate. Several GPUs share an index: blocks of vectors of a flat one, lists of an inverted file. FAISS's GPU indexes are not
thread-safe, so that one search runs at a time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from wikidx.corpora.artifacts.manifest import Manifest
from wikidx.corpora.errors import IdxError, MissingExtraError
from wikidx.corpora.progress import amount
from wikidx.corpora.store import Rows
from wikidx.indexer.base import Hits, Placement, Scores, Vectors
from wikidx.indexer.indexes.exact.best_keys import merge_hits
from wikidx.indexer.indexes.kinds import OpenOptions
from wikidx.indexer.machine.devices import Load, free_on_gpus, gpu_numbers, place
from wikidx.indexer.machine.threads import equal_ranges
from wikidx.indexer.page_checks import CheckedFiles

from . import cpu as faiss_cpu
from .index import FaissIndex, contents_of
from .library import INDEX_FILE, load_faiss, reason
from .row_range import without_lists

LARGEST_K = 2_048  # limit of FAISS's selection kernels, also for nprobe
_PAGE_BYTES = 1 << 30  # float32 vectors copied to a GPU at a time: one block of a flat index
_WORK_BYTES = _PAGE_BYTES + 2.2e9  # memory on each GPU: that block, FAISS's temporary memory (1.5 GB) and CUDA's own
_LIST_PADDING = 1.05  # lists are padded to multiples of 32 vectors

Search = Callable[[Vectors, int, Mapping[str, int]], Hits]
"""Searches a share of an index on one GPU."""


def open_flat_anywhere(path: Path, manifest: Manifest, opening: OpenOptions) -> FaissIndex:
    """Open a flat float16 index on the device of ``opening.device``.

    Raises:
        ArtifactDamaged: see ``faiss_cpu.open_mapped``.
        InputError: this build of FAISS has no GPU support, there is no GPU of that number, or the index does not fit.
        IdxError: a GPU has failed.
    """
    per_vector = 2 * manifest.count("dim") + 4  # and a norm
    gpus, placement = _placed(opening, per_vector * _n_vectors(manifest, opening))
    if not gpus:
        return faiss_cpu.open_flat(path, manifest, opening, placement)
    mapped, first_place, contents, check = faiss_cpu.open_flat_part(path, manifest, opening)
    check()
    with _failures_named(opening.name):
        shares = zip(gpus, equal_ranges(mapped.ntotal, len(gpus)), strict=True)
        parts = [list(_flat_parts(mapped, gpu, share, first_place)) for gpu, share in shares]
    return FaissIndex(contents, opening, _Workers(opening.name, parts).search, placement, largest_k=LARGEST_K)


def open_ivf_anywhere(path: Path, manifest: Manifest, opening: OpenOptions) -> FaissIndex:
    """Open an inverted file on the device of ``opening.device``; raises as ``open_flat_anywhere`` does."""
    entry_bytes = _code_bytes(manifest) + 8
    gpus, placement = _placed(opening, _LIST_PADDING * entry_bytes * _n_vectors(manifest, opening))
    if not gpus:
        return faiss_cpu.open_ivf(path, manifest, opening, placement)
    CheckedFiles(path, manifest)[INDEX_FILE].check_all()
    mapped = faiss_cpu.open_ivf_part(path, manifest, opening)
    with _failures_named(opening.name):
        parts = [[_ivf_part(only_lists(mapped, lists), gpu)] for gpu, lists in zip(gpus, _list_shares(mapped, len(gpus)), strict=True)]
    contents = contents_of(manifest, np.empty(0, dtype=np.int64), mapped.ntotal, largest_nprobe=LARGEST_K)
    return FaissIndex(contents, opening, _Workers(opening.name, parts).search, placement, largest_k=LARGEST_K)


def _n_vectors(manifest: Manifest, opening: OpenOptions) -> int:
    """Return the maximum number of vectors to open."""
    n_vectors = manifest.count("vectors")
    return n_vectors if opening.rows is None else min(n_vectors, len(opening.rows))


def only_lists(index: Any, lists: range) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return an inverted file with the quantisers of another and some of its lists, the others empty; without copying."""
    faiss = load_faiss()
    if len(lists) == index.nlist:
        return index
    share = without_lists(index)
    before = faiss.ArrayInvertedLists(lists.start, index.code_size)
    those = faiss.SliceInvertedLists(index.invlists, lists.start, lists.stop)
    behind = faiss.ArrayInvertedLists(index.nlist - lists.stop, index.code_size)
    stacked = faiss.InvertedListsPtrVector()
    for piece in (before, those, behind):
        stacked.push_back(piece)
    joined = faiss.VStackInvertedLists(stacked.size(), stacked.data())
    share.replace_invlists(joined, False)
    share.ntotal = joined.compute_ntotal()
    share.referenced_objects = [index, before, those, behind, joined]
    return share


class _Workers:
    """The shards of an index, one thread per GPU, one search at a time."""

    def __init__(self, name: str, parts: Sequence[Sequence[Search]]) -> None:
        self._name, self._parts = name, parts
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(len(parts), thread_name_prefix=f"faiss-{name}")

    def search(self, queries: Vectors, k: int, settings: Mapping[str, int]) -> tuple[Scores, Rows]:
        with self._lock, _failures_named(self._name):
            found = list(self._threads.map(lambda parts: [search(queries, k, settings) for search in parts], self._parts))
        best = merge_hits([hits for share in found for hits in share], len(queries), k)
        return best.scores, best.rows


def _list_shares(mapped: Any, n_gpus: int) -> list[range]:  # noqa: ANN401
    """Return consecutive lists for each GPU, with about equally many entries."""
    ends = np.cumsum([mapped.get_list_size(number) for number in range(mapped.nlist)])
    cuts = np.searchsorted(ends, [mapped.ntotal * number / n_gpus for number in range(1, n_gpus)]).tolist()
    return [range(start, stop) for start, stop in zip([0, *cuts], [*cuts, mapped.nlist], strict=True)]


def _flat_parts(mapped: Any, gpu: int, places: range, first_place: int) -> Iterator[Search]:  # noqa: ANN401
    """Yield the blocks of a flat index on one GPU; each is filled at once, because a growing one is copied on the GPU.

    Args:
        mapped: the index, whose first vector is at ``first_place`` of the whole.
        gpu: number of the GPU.
        places: places in the mapped index of the GPU's vectors.
        first_place: see above.
    """
    faiss = load_faiss()
    resources = faiss.StandardGpuResources()
    page = max(1, _PAGE_BYTES // (4 * mapped.d))
    for first in range(places.start, places.stop, page):
        config = faiss.GpuIndexFlatConfig()
        config.useFloat16 = True
        index = faiss.GpuIndexFlat(resources, mapped.d, faiss.METRIC_INNER_PRODUCT, _on(config, gpu))
        index.add(mapped.reconstruct_n(first, min(page, places.stop - first)))
        index.referenced_objects = [resources]
        yield _flat_search(index, first_place + first)


def _flat_search(index: Any, first_place: int) -> Search:  # noqa: ANN401
    def search(queries: Vectors, k: int, settings: Mapping[str, int]) -> Hits:
        scores, places = index.search(queries, min(k, index.ntotal))
        return Hits(np.where(places < 0, places, places + first_place), scores)

    return search


def _ivf_part(index: Any, gpu: int) -> Search:  # noqa: ANN401
    """Copy an inverted file to a GPU, list by list."""
    faiss = load_faiss()
    resources = faiss.StandardGpuResources()
    if isinstance(index, faiss.IndexIVFPQ):
        config = faiss.GpuIndexIVFPQConfig()
        config.interleavedLayout = True  # the only one with 4-bit codes
        copy = faiss.GpuIndexIVFPQ(resources, index, _on(config, gpu))
    else:
        copy = faiss.GpuIndexIVFScalarQuantizer(resources, index, _on(faiss.GpuIndexIVFScalarQuantizerConfig(), gpu))
    copy.referenced_objects = [resources]

    def search(queries: Vectors, k: int, settings: Mapping[str, int]) -> Hits:
        scores, rows = copy.search(queries, k, params=faiss.SearchParametersIVF(nprobe=settings["nprobe"]))
        return Hits(rows, scores)

    return search


def _on(config: Any, gpu: int) -> Any:  # noqa: ANN401
    """Return a configuration for one GPU, with FAISS's own kernels."""
    config.device = gpu
    if hasattr(config, "use_cuvs"):
        config.use_cuvs = False
    return config


_WITHOUT_GPUS = (
    "with the extra 'gpu' in place of 'dense' it can; exact search, named by the encoder alone, runs on a GPU "
    "without FAISS; --device auto leaves the index on the CPU"
)


def _placed(opening: OpenOptions, n_bytes: float) -> tuple[tuple[int, ...], Placement]:
    """Return the GPUs for an index of that many bytes, none for the CPU, and the reason; see ``devices.place``."""
    n_gpus = load_faiss().get_num_gpus()
    if n_gpus and opening.device not in ("cpu", "mps") and importlib.util.find_spec("torch") is None:
        raise MissingExtraError("a FAISS index on a GPU", "gpu")
    seen_by = ("this FAISS", _WITHOUT_GPUS)
    free = [] if opening.device in ("cpu", "mps") else free_on_gpus(opening.device, n_gpus, *seen_by)
    load = Load("FAISS", f"{amount(n_bytes)} of '{opening.name}'", n_bytes, _WORK_BYTES, (), *seen_by)
    placement = place(load, opening.device, free)
    return gpu_numbers(",".join(placement.devices).replace(",cuda:", ","), n_gpus), placement


def _code_bytes(manifest: Manifest) -> int:
    n_subquantizers = manifest.recipe.parameters.get("subquantizers")
    return 2 * manifest.count("dim") if not isinstance(n_subquantizers, int) else -(-n_subquantizers // 2)


@contextlib.contextmanager
def _failures_named(name: str) -> Iterator[None]:
    """Translate FAISS's exceptions for a GPU with too little memory or a failure."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        raise IdxError(
            f"'{name}' failed on the GPU ({reason(error)}): start again with fewer other programs on it, or --device cpu"
        ) from error
