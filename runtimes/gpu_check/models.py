"""Cross-encoder and language model with random weights against transformers alone, text by text on the CPU in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from wikidx.base.errors import IdxError
from wikidx.corpora.passage import Passage, title_and_text
from wikidx.indexer.base import Scores
from wikidx.indexer.networks.loading import silent_transformers
from wikidx.retrievers.rerankers.checkpoint import RerankerSpec
from wikidx.retrievers.rerankers.cross_encoder import CrossEncoder
from wikidx.runtimes.llms.base import Call, Decoding, Generate, Reply
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

from .networks import made_passages, save_bert, save_llama
from .task import Task

_RERANK_ALLOWED = {"cpu": 1e-4, "gpu": 5e-2}  # relative to the spread of the scores; on a GPU the network is in float16: 0.8e-2 on a CPU
_LIKELY_ALLOWED = {"float32": 1e-3, "float16": 5e-2, "bfloat16": 0.5}  # of log-probabilities; on a CPU 1e-6, 4e-3 and 3e-2
_LETTERS = "abcdefghijklmnopqrstuvwxyz ."


def check_reranker(task: Task, *, n_queries: int, n_passages: int, n_words: int, sizes: Mapping[str, int]) -> None:
    """Compare the scores of pairs of different lengths, in batches with padding, with those of each pair by itself."""
    folder = save_bert(task.folder / "reranker", n_labels=1, **sizes)
    queries, passages = made_pairs(n_queries, n_passages, n_words)
    expected = score_singly(folder, queries, passages)
    scores = cross_encoder_in(folder, task.device).score(queries, passages)
    spread = float(expected.max() - expected.min())
    task.check(f"{len(queries):,} pairs", _relative(scores, expected, spread), _RERANK_ALLOWED["gpu" if task.on_gpu else "cpu"])
    order = np.random.default_rng(5).permutation(len(queries))
    shuffled = cross_encoder_in(folder, task.device).score([queries[n] for n in order], [passages[n] for n in order])
    task.check("in another order", _relative(shuffled, scores[order], spread), _RERANK_ALLOWED["gpu" if task.on_gpu else "cpu"])


def made_pairs(n_queries: int, n_passages: int, n_words: int) -> tuple[list[str], list[Passage]]:
    """Return made queries, each repeated for each of its passages."""
    texts = list(made_passages(n_queries + n_passages, n_words))
    queries = [f"{passage.title} {passage.text[:40]}" for passage in texts[:n_queries]]
    return [query for query in queries for _ in range(n_passages)], texts[n_queries:] * n_queries


def cross_encoder_in(folder: Path, device: str) -> CrossEncoder:
    """Open the cross-encoder in a folder; its scores are logits."""
    return CrossEncoder(RerankerSpec(name="made", checkpoint=folder, activation="torch.nn.Identity"), device)


def score_singly(folder: Path, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
    """Return the logit of each pair by itself, without padding, float32 on the CPU."""
    import torch
    import transformers

    with silent_transformers():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        network = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype="float32").eval()
    pairs = [(query, title_and_text(passage)) for query, passage in zip(queries, passages, strict=True)]
    with torch.inference_mode():
        encoded = (tokenizer(*pair, truncation=True, max_length=512, return_tensors="pt") for pair in pairs)
        return np.array([float(network(**tokens).logits[0, 0]) for tokens in encoded], dtype=np.float32)


def _relative(scores: Scores, expected: Scores, spread: float) -> float:
    return float(abs(scores - expected).max()) / spread


class _Likelihoods(NamedTuple):
    """Of generated tokens: log-probabilities lacking to the likeliest token, and differences from the reported ones; the largest."""

    lacking: float
    off: float


def check_language_model(
    task: Task, *, n_prompts: int, max_tokens: int, dtypes: Sequence[Literal["float32", "float16", "bfloat16"]], sizes: Mapping[str, int]
) -> None:
    """Compare greedy texts of prompts of different lengths, generated together, with the likelihoods of each text by itself.

    The model has fewer heads of keys and values than of queries. cuDNN's attention, which has garbled such batches (pytorch#193893), is
    recorded on a GPU and not checked: idx switches it off.
    """
    import torch

    folder = save_llama(task.folder / "llama", **sizes)
    generator = np.random.default_rng(6)
    prompts = ["".join(generator.choice(list(_LETTERS), length)) for length in np.linspace(1, 240, n_prompts).astype(int)]
    for dtype in dtypes:
        engine = TransformersEngine(str(folder), options=EngineOptions(device=task.device, dtype=dtype))
        found = _likelihoods(folder, engine, prompts, max_tokens)
        task.check(f"{dtype}: log-probability that chosen tokens lack", found.lacking, _LIKELY_ALLOWED[dtype])
        task.check(f"{dtype}: reported log-probabilities", found.off, _LIKELY_ALLOWED[dtype])
    for dtype in dtypes if task.on_gpu else ():  # last: it may spoil what follows
        engine = TransformersEngine(str(folder), options=EngineOptions(device=task.device, dtype=dtype))
        torch.backends.cuda.enable_cudnn_sdp(True)
        try:
            found = _likelihoods(folder, engine, prompts, max_tokens)
            task.record(f"{dtype}, with cuDNN's attention", {"lacking": found.lacking, "off": found.off, "used by idx": "no"})
        except IdxError as error:
            task.note(f"{dtype}, with cuDNN's attention: {error}")
        finally:
            torch.backends.cuda.enable_cudnn_sdp(False)


def _likelihoods(folder: Path, engine: TransformersEngine, prompts: Sequence[str], max_tokens: int) -> _Likelihoods:
    """Generate texts, and compare with the forward pass of each, float32 on the CPU."""
    import torch
    import transformers

    calls: list[Call] = [Generate(prompt=prompt, decoding=Decoding(max_tokens=max_tokens), logprobs=True) for prompt in prompts]
    replies = engine.run(calls)
    with silent_transformers():
        network: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lacking, off = 0.0, 0.0
    for prompt, reply in zip(prompts, replies, strict=True):
        if not isinstance(reply, Reply) or not isinstance(reply.result, tuple):
            raise IdxError(f"the language model gave no text: {reply}")
        (gen,) = reply.result
        ids, generated = tokenizer(prompt)["input_ids"], list(gen.token_ids or ())
        with torch.inference_mode():
            logits = network(torch.tensor([[*ids, *generated]])).logits[0, len(ids) - 1 : -1].double()
        logprobs = logits.log_softmax(-1)
        chosen = logprobs.gather(1, torch.tensor(generated)[:, None])[:, 0]
        lacking = max(lacking, float((logprobs.amax(dim=1) - chosen).max()))
        off = max(off, float((chosen - torch.tensor(gen.logprobs, dtype=torch.float64)).abs().max()))
    return _Likelihoods(lacking, off)
