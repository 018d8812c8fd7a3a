"""The memory that the planner expects, against dry allocations: real operations at reduced sizes, and fake tensors at full size.

CPU and GPU run the same operations here, with two exceptions. On a CPU, a product of float16 vectors first copies them to float32; the
fixture ``product`` has the result of a GPU's product and its one allocation. Memory that no operation of torch allocates is CUDA's own
(``CUDA_BYTES``): kernels, workspaces of the matrix products and of sorting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'dense'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'dense'")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from tests.indexer.dry_allocation import DryAllocation  # noqa: E402
from wikidx.base.machine.fit import CUDA_BYTES  # noqa: E402
from wikidx.indexer.indexes.exact import gpu, gpu_best, memory  # noqa: E402
from wikidx.indexer.networks.network_size import (  # noqa: E402
    DTYPE_BYTES,
    Dtype,  # noqa: E402
    size_of_config,
)

_REDUCED = 512  # factor by which tiles and batches of candidates are smaller
_TOLERANCE = 0.05


def product(terms: Sequence[Any], rows: Any) -> Any:  # noqa: ANN401 - tensors of a module that may be missing
    scores = torch.empty(len(terms[0]), len(rows))
    for first in range(0, len(rows), 1024):
        some = rows[first : first + 1024].float()
        scores[:, first : first + 1024] = sum(term.float() @ some.T for term in terms)
    return scores


@pytest.mark.parametrize(("n_queries", "k"), [(4, 992), (64, 32)])
def test_exact_search_takes_the_memory_that_is_expected(n_queries: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is better than those before it: no score can be skipped, and the merges are as large as they can be."""
    monkeypatch.setattr(gpu, "_product", product)
    monkeypatch.setattr(gpu, "_TILE_SCORES", gpu._TILE_SCORES // _REDUCED)
    for name in ("_MOST_EXAMINED", "_LEAST_ROOMS"):
        monkeypatch.setattr(gpu_best, name, getattr(gpu_best, name) // _REDUCED)
    monkeypatch.setattr(gpu_best, "_LEAST_ROOM", gpu_best._LEAST_ROOM * gpu._MAX_QUERIES // _REDUCED // n_queries)
    vectors = np.zeros((4 * gpu._TILE_SCORES // n_queries, 8), dtype=np.float16)
    vectors[:, 0] = np.linspace(0, 1, len(vectors))
    queries = np.random.default_rng(0).uniform(0.1, 1, size=(n_queries, 8)).astype(np.float32)
    shard = gpu.DeviceShard(torch.from_numpy(vectors), 0, np.empty(0, dtype=np.int64))
    with DryAllocation([shard.vectors]) as dry:
        shard.search(queries, k)
    assert n_queries * gpu._n_candidates(k) == gpu._MAX_KEYS // _REDUCED  # as many as a batch of queries can have
    assert 0.4 <= _REDUCED * dry.peak / (memory.WORK_BYTES - CUDA_BYTES) <= 1


def bert(**sizes: int) -> Any:  # noqa: ANN401
    return transformers.BertConfig(**{"num_hidden_layers": 2, **sizes})


NETWORKS: dict[str, tuple[str, Callable[[], Any], Dtype]] = {
    "bert-base": ("BertModel", lambda: bert(num_hidden_layers=5), "float16"),
    "bert-base in float32": ("BertModel", bert, "float32"),
    "MiniLM": ("BertModel", lambda: bert(hidden_size=384, intermediate_size=1536), "float16"),
    "T5": (
        "T5EncoderModel",
        lambda: transformers.T5Config(d_model=768, d_ff=3072, num_layers=2, num_heads=12, d_kv=64, use_cache=False),
        "bfloat16",
    ),
    "Qwen3": (
        "Qwen3Model",
        lambda: transformers.Qwen3Config(
            hidden_size=1024, intermediate_size=3072, num_hidden_layers=2, num_attention_heads=16, num_key_value_heads=8, use_cache=False
        ),
        "bfloat16",
    ),
    "Mistral": ("MistralModel", lambda: transformers.MistralConfig(num_hidden_layers=2, use_cache=False), "bfloat16"),
    "cross-encoder of bge": (
        "XLMRobertaForSequenceClassification",
        lambda: transformers.XLMRobertaConfig(vocab_size=250_002, max_position_embeddings=514, num_labels=1, num_hidden_layers=2),
        "float16",
    ),
}


@pytest.mark.parametrize("width", [128, 512])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_takes_what_its_configuration_says(name: str, width: int) -> None:
    """Batches of 32,768 tokens, padded, as embedding and reranking on a GPU have them."""
    network_class, make_config, dtype = NETWORKS[name]
    config = make_config()
    with FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode():
        network = getattr(transformers, network_class)._from_config(config, dtype=getattr(torch, dtype)).eval()
        weights = [*network.parameters(), *network.buffers()]
        with DryAllocation(weights) as dry:
            ids = torch.zeros((32_768 // width, width), dtype=torch.int32)
            mask = torch.arange(width) < torch.full((32_768 // width, 1), width)
            network(input_ids=ids, attention_mask=mask)
    size = size_of_config(config.to_dict())
    assert size is not None
    assert size.forward_bytes(32_768, width, dtype) == pytest.approx(dry.peak, rel=_TOLERANCE)
    weight_bytes = sum(weight.untyped_storage().nbytes() for weight in network.parameters())
    assert size.n_weights * DTYPE_BYTES[dtype] == pytest.approx(weight_bytes, rel=_TOLERANCE)
    assert size.demand("n", n_tokens=32_768, width=width, dtype=dtype).n_bytes == pytest.approx(weight_bytes + dry.peak, rel=_TOLERANCE)


def test_of_an_unknown_form_nothing_is_known() -> None:
    assert size_of_config({"model_type": "bert", "hidden_size": 768}) is None
