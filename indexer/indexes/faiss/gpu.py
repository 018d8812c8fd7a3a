"""Inverted files of FAISS on one or several GPUs, from the files of ``ivf`` and ``ivfpq``. They need the extra ``gpu``.

The mapped file is copied to a GPU list by list. An index that does not fit by estimate is refused beforehand. Several GPUs divide the
lists. FAISS's GPU indexes are not thread-safe: one search runs at a time.
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

from wikidx.base.artifacts.checked_files import CheckedFiles
from wikidx.base.artifacts.manifest import Manifest
from wikidx.base.errors import MissingExtraError
from wikidx.base.machine.devices import SearchLoad, choose_placement, count_search_gpus, free_memory_of_gpus, resolve_gpus
from wikidx.base.machine.failures import device_errors
from wikidx.base.machine.fit import Demand, Placement
from wikidx.base.progress import format_bytes
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import Hits, Scores, Vectors
from wikidx.indexer.indexes.approximate import LARGEST_K, ApproximateIndex, select
from wikidx.indexer.indexes.keys import merge_hits
from wikidx.indexer.indexes.kinds import OpenOptions

from . import cpu as faiss_cpu
from .library import INDEX_FILE, load_faiss, reason

WORK_BYTES = 2.2e9  # memory on each GPU besides the index: FAISS's temporary memory (1.5 GB), and CUDA's
_LIST_MULTIPLE = 32  # lists are padded to multiples of this number of vectors
_GPU_PAGE_BYTES = 2 << 20  # the driver's, for all that is larger than half of one

ShardSearch = Callable[[Vectors, int, Mapping[str, int]], Hits]
"""Function (queries, k, search parameters) -> hits in one index shard on one GPU."""


def open_ivf_anywhere(path: Path, manifest: Manifest, options: OpenOptions) -> ApproximateIndex:
    """Open an inverted file on the device of ``options.device``.

    Raises:
        ArtifactCorrupt: see ``faiss_cpu.open_mapped``.
        InputError: this build of FAISS has no GPU support, the GPU does not exist, or the index does not fit.
        IdxError: a GPU has too little memory, or fails.
        DeviceLost: a GPU fails, and takes no work any more.
        MissingExtraError: a GPU is named, and torch is not installed.
    """
    if not _count_gpus(options.device):
        placement = _choose_gpus(options, manifest.files[INDEX_FILE].n_bytes)[1]
        return faiss_cpu.open_ivf(path, manifest, options, placement)
    mapped = faiss_cpu.map_ivf(path, manifest, options)
    gpus, placement = _choose_gpus(options, list_bytes([mapped.get_list_size(number) for number in range(mapped.nlist)], mapped.code_size))
    if not gpus:
        return faiss_cpu.open_ivf(path, manifest, options, placement)
    CheckedFiles(path, manifest)[INDEX_FILE].check_all()
    shares = zip(gpus, _divide_lists(mapped, len(gpus)), strict=True)
    searches = [_copy_ivf(select_lists(mapped, lists), gpu, options.name) for gpu, lists in shares]
    workers, no_rows = _GpuWorkers(options.name, searches), np.empty(0, dtype=np.int64)
    search = select(workers.search, manifest.count("rows"), LARGEST_K)
    return ApproximateIndex(manifest, no_rows, mapped.ntotal, options, search, placement)


def list_bytes(sizes: Sequence[int], code_bytes: int) -> int:
    """Return the bytes that a GPU takes for lists of these sizes: for each its codes and its ids, padded, from 1 MiB on in whole pages."""
    padded = -(-np.array(sizes, dtype=np.int64) // _LIST_MULTIPLE) * _LIST_MULTIPLE
    allocated = np.stack([padded * code_bytes, padded * 8])
    return int(np.where(allocated > _GPU_PAGE_BYTES // 2, -(-allocated // _GPU_PAGE_BYTES) * _GPU_PAGE_BYTES, allocated).sum())


def select_lists(index: Any, lists: range) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return an inverted file that shares the quantisers and some lists of ``index``, without a copy. Its other lists are empty."""
    faiss = load_faiss()
    if len(lists) == index.nlist:
        return index
    subset = faiss_cpu.copy_without_lists(index)
    before = faiss.ArrayInvertedLists(lists.start, index.code_size)
    chosen = faiss.SliceInvertedLists(index.invlists, lists.start, lists.stop)
    after = faiss.ArrayInvertedLists(index.nlist - lists.stop, index.code_size)
    stacked = faiss.InvertedListsPtrVector()
    for part in (before, chosen, after):
        stacked.push_back(part)
    combined = faiss.VStackInvertedLists(stacked.size(), stacked.data())
    subset.replace_invlists(combined, False)
    subset.ntotal = combined.compute_ntotal()
    subset.referenced_objects = [index, before, chosen, after, combined]
    return subset


class _GpuWorkers:
    """Shards of an index, with one thread per GPU. One search runs at a time."""

    def __init__(self, name: str, searches: Sequence[ShardSearch]) -> None:
        self._searches = searches
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(len(searches), thread_name_prefix=f"faiss-{name}")

    def search(self, queries: Vectors, k: int, settings: Mapping[str, int]) -> tuple[Scores, Rows]:
        with self._lock:
            parts = list(self._threads.map(lambda search: search(queries, k, settings), self._searches))
        best = merge_hits(parts, len(queries), k)
        return best.scores, best.rows


def _divide_lists(mapped: Any, n_gpus: int) -> list[range]:  # noqa: ANN401
    """Return a range of lists for each GPU, with about equally many entries."""
    ends = np.cumsum([mapped.get_list_size(number) for number in range(mapped.nlist)])
    boundaries = np.searchsorted(ends, [mapped.ntotal * number / n_gpus for number in range(1, n_gpus)]).tolist()
    return [range(start, stop) for start, stop in zip([0, *boundaries], [*boundaries, mapped.nlist], strict=True)]


def _copy_ivf(index: Any, gpu: int, name: str) -> ShardSearch:  # noqa: ANN401
    """Copy an inverted file to a GPU, list by list, and return its search."""
    faiss = load_faiss()
    with _gpu_errors(name, gpu):
        resources = faiss.StandardGpuResources()
        if isinstance(index, faiss.IndexIVFPQ):
            config = faiss.GpuIndexIVFPQConfig()
            config.interleavedLayout = True  # the only layout for 4-bit codes
            copy = faiss.GpuIndexIVFPQ(resources, index, _on_gpu(config, gpu))
        else:
            copy = faiss.GpuIndexIVFScalarQuantizer(resources, index, _on_gpu(faiss.GpuIndexIVFScalarQuantizerConfig(), gpu))
        copy.referenced_objects = [resources]

    def search(queries: Vectors, k: int, settings: Mapping[str, int]) -> Hits:
        with _gpu_errors(name, gpu):
            scores, rows = copy.search(queries, k, params=faiss.SearchParametersIVF(nprobe=settings["nprobe"]))
        return Hits(rows, scores)

    return search


def _on_gpu(config: Any, gpu: int) -> Any:  # noqa: ANN401
    """Set the GPU of a configuration, and choose FAISS's own kernels instead of cuVS's; return the configuration."""
    config.device = gpu
    if hasattr(config, "use_cuvs"):
        config.use_cuvs = False
    return config


_WITHOUT_GPUS = (
    "with the extra 'gpu' in place of 'dense' it can; exact search, named by the encoder alone, runs on a GPU "
    "without FAISS; --device auto leaves the index on the CPU"
)


def _choose_gpus(options: OpenOptions, n_bytes: float) -> tuple[tuple[int, ...], Placement]:
    """Return the GPUs for an index of ``n_bytes`` (none: the CPU), and the placement; see ``devices.choose_placement``."""
    n_gpus = _count_gpus(options.device)
    demand = Demand(f"{format_bytes(n_bytes)} of '{options.name}'", WORK_BYTES, n_bytes)
    load = SearchLoad("FAISS", demand, library="this FAISS", without_gpus=_WITHOUT_GPUS)
    resolve_gpus(options.device, n_gpus, load.library, load.without_gpus)
    free = [] if options.device in ("cpu", "mps") else free_memory_of_gpus(options.device, n_gpus)
    placement = choose_placement(load, options.device, free)
    return tuple(int(name.removeprefix("cuda:")) for name in placement.devices if name != "cpu"), placement


def _count_gpus(device: str) -> int:
    """Return the number of GPUs that FAISS can use if ``device`` may be one.

    torch is asked first, because FAISS ends the process if the driver is broken.

    Raises:
        MissingExtraError: a GPU is named, and torch is not installed.
    """
    if device not in ("auto", "cpu", "mps") and importlib.util.find_spec("torch") is None:
        raise MissingExtraError("a FAISS index on a GPU", "gpu")
    n_gpus: int = load_faiss().get_num_gpus() if device not in ("cpu", "mps") and count_search_gpus() else 0
    return n_gpus


@contextlib.contextmanager
def _gpu_errors(name: str, gpu: int) -> Iterator[None]:
    """Translate FAISS's exceptions for a GPU that fails or has too little memory, as torch's; see ``device_errors``.

    FAISS raises those of failed allocations, also of one that another error of CUDA has made fail; after all others it ends the process.
    """
    advice = "end other programs there, or name more GPUs (--device cuda:0,1)"
    with device_errors(f"cuda:{gpu}", f"'{name}'", advice, aftermath="; start again, or with --device cpu"):
        try:
            yield
        except RuntimeError as error:
            raise RuntimeError(reason(error)) from error
