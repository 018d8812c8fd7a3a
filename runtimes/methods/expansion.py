"""Expansion of queries: a stage that turns a query into a group of queries, for all methods that read passages, and for ``search_groups``.

``hyde``: hypothetical passages that answer the query (Gao et al., Precise Zero-Shot Dense Retrieval without Relevance Labels, 2022, arXiv
2212.10496, section 3.2, and the authors' code ``texttron/hyde``). HyDE searches with the mean of the vectors of query and passages. Here
the group is merged by the rule "sum", which orders alike where inner products rank, among the rows that all queries of the group find
within ``depth``. Other retrievers, such as BM25, take the same group.

``rewrites``: other wordings of the query, merged by the rule "rrf" (this project's).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, cast

from wikidx.retrievers.options import MergeRule
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.llms.base import LLM, Gen, Generate
from wikidx.runtimes.llms.prompts import Decoding

from .model_output import drop_placeholder, parse_list
from .requests import send
from .sentences import normalize_words
from .templates import load_template

Expansion = Literal["hyde", "rewrites"]
FOLDER = "expansion"
"""Folder of the prompts."""


class _Kind(NamedTuple):
    """A kind of expansion.

    Attributes:
        n: number of queries that are added.
        merge: the rule by which the group is merged.
        decoding: decoding parameters.
        n_texts: number of texts that give the queries; None: one for each.
    """

    n: int
    merge: MergeRule
    decoding: Decoding
    n_texts: int | None = None


KINDS: dict[Expansion, _Kind] = {
    "hyde": _Kind(8, "sum", Decoding(max_tokens=512, temperature=0.7)),  # as in the authors' code
    "rewrites": _Kind(3, "rrf", Decoding(max_tokens=256), n_texts=1),
}


async def expand(query: str, kind: Expansion, n: int | None = None) -> tuple[str, ...]:
    """Return queries that go with a query, within a method: ``n`` at most, distinct, and other than the query."""
    texts = await send(_request(query, kind, n))
    return _read(query, cast("tuple[Gen, ...]", texts), kind, n)


def expand_groups(queries: Sequence[str], llm: LLM, kind: Expansion, n: int | None = None, *, seed: int = 0) -> list[list[str]]:
    """Return a group for each query, with the query first, as ``search_groups`` takes them.

    Args:
        queries: the queries.
        llm: a model, which gets all calls as one batch.
        kind: what is added; ``KINDS[kind].merge`` is the rule to merge the groups by.
        n: number of added queries; None: 8 passages, 3 rewrites.
        seed: random seed of sampled texts.

    Raises:
        LLMError: a call fails.
    """
    replies = llm.run([_request(query, kind, n, seed) for query in queries])
    if failed := next((reply for reply in replies if isinstance(reply, LLMError)), None):
        raise failed
    texts = (cast("tuple[Gen, ...]", reply.result) for reply in replies if not isinstance(reply, LLMError))
    return [[query, *_read(query, gens, kind, n)] for query, gens in zip(queries, texts, strict=True)]


def _request(query: str, kind: Expansion, n: int | None, seed: int | None = None) -> Generate:
    chosen = KINDS[kind]
    n = n or chosen.n
    decoding = chosen.decoding if chosen.decoding.is_greedy else replace(chosen.decoding, seed=seed)
    template = load_template(FOLDER, kind)
    prompt = template(query=query) if chosen.n_texts is None else template(query=query, n=str(n))
    return Generate(prompt=prompt, decoding=decoding, n=chosen.n_texts or n)


def _read(query: str, texts: Iterable[Gen], kind: Expansion, n: int | None) -> tuple[str, ...]:
    if kind == "rewrites":
        found = [item for text in texts for item in parse_list(text.text, is_cut=text.finish == "length")]
    else:
        found = [drop_placeholder(text.text) for text in texts]
    distinct: dict[str, str] = {}
    for text in (" ".join(each.split()) for each in found):
        distinct.setdefault(normalize_words(text), text)
    return tuple(text for words, text in distinct.items() if words not in ("", normalize_words(query)))[: n or KINDS[kind].n]
