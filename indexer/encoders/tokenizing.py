"""Tokenization of texts: texts -> token ids. Separate processes tokenise ahead of the model: they unpickle a tokenizer, without torch.

The checkpoint's own tokenizer splits texts into tokens and defines the special tokens. This module truncates texts, joins pairs and adds
the special tokens, because the libraries of the published encoders differ in these steps. Unpaired surrogates become U+FFFD.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wikidx.base.batches import in_batches
from wikidx.base.errors import ArtifactCorrupt, ArtifactMismatch, require_packages
from wikidx.corpora.passage import Passage
from wikidx.indexer.networks.checkpoints import CONFIG, read_json_object
from wikidx.indexer.networks.loading import n_positions
from wikidx.indexer.networks.tokenizers import checkpoint_tokenizer, load_any_tokenizer

from .spec import EncoderSpec, Pair, Side, Tokens

if TYPE_CHECKING:
    import tokenizers

Ids = list[int]

_SPARE_ROWS = 1024  # limit on embedding rows without a token. They pad the vocabulary to a round number: T5 has 28, others some hundreds
_SURROGATES = re.compile("[\ud800-\udfff]")
_SLICE_TEXTS = 256  # texts tokenised at a time: the tokenizer's output takes many times the memory of the token ids
_SLICE_CHARACTERS = 1 << 20


class Tokenizer:
    """The tokenizer of one side of an encoder. Picklable.

    Args:
        spec: the encoder.
        side: query or passage.
        max_tokens: maximum length of a text; None: the encoder's.

    Raises:
        ArtifactMismatch: the tokenizer does not match the network, or the network has too few positions or token types.
        ArtifactCorrupt: the tokenizer's files cannot be read.
        InputError, DownloadError, MissingExtraError: see ``checkpoints.locate``.
    """

    def __init__(self, spec: EncoderSpec, side: Side, max_tokens: int | None = None) -> None:
        folder = spec.folder(side)
        self._spec = spec
        self._max_tokens = max_tokens or spec.max_tokens(side)
        self._tokenizer = _load_tokenizer(folder, spec)
        _check_sizes(self._tokenizer, folder, spec, spec.max_tokens(side))
        self._start, self._middle, self._end = _special_tokens(self._tokenizer, folder, are_needed=not spec.by_transformers)
        self._prompt = spec.prompt(side)
        n_prompt = len(self._start) + len(self._split([self._prompt])[0]) if self._prompt and not spec.pools_prompt else 0
        self._n_unpooled = min(n_prompt, self._max_tokens - 1)

    def queries(self, queries: Iterable[str]) -> Tokens:
        """Return the tokens of each query."""
        return self._tokens(self._spec.query_text(query) for query in queries)

    def passages(self, passages: Iterable[Passage]) -> Tokens:
        """Return the tokens of each passage; a stream is consumed one slice at a time."""
        return self._tokens(self._spec.passage_text(passage) for passage in passages)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the start and end of each token of a text, without special tokens, in characters; raises ``InputError`` without tokens."""
        # Rust's strings cannot hold surrogates, and offsets must stay those of the text.
        offsets: list[tuple[int, int]] = self._tokenizer.encode(_SURROGATES.sub("\ufffd", text), add_special_tokens=False).offsets
        return offsets

    def _tokens(self, texts: Iterable[str | Pair]) -> Tokens:
        return concatenate([self._encode_texts(batch) for batch in _batch_texts(map(self._add_prompt, texts))] or [self._encode_texts([])])

    def _add_prompt(self, text: str | Pair) -> str | Pair:
        return self._prompt + text if isinstance(text, str) else text

    def _encode_texts(self, texts: list[str | Pair]) -> Tokens:
        ids = iter(self._split_texts(texts))
        whole = [self._join(next(ids), None if isinstance(text, str) else next(ids)) for text in texts]
        lengths = np.array([len(ids) for ids, _ in whole], dtype=np.int64)
        ends = np.cumsum(lengths)
        flat = np.fromiter(itertools.chain.from_iterable(ids for ids, _ in whole), dtype=np.int32, count=int(lengths.sum()))
        types = _types(lengths, np.array([n for _, n in whole], dtype=np.int64)) if self._spec.second_type else None
        return Tokens(flat, ends, types, self._n_unpooled)

    def _join(self, first: Ids, second: Ids | None) -> tuple[Ids, int]:
        """Return the tokens of a text, or of a pair, truncated and with special tokens, and the number of tokens of type 0."""
        middle, last = [] if second is None else self._middle, self._spec.extra_sep_position
        budget = self._max_tokens - len(self._start) - len(middle) - len(self._end)
        n_first, n_second = truncate_pair(len(first), len(second or ()), budget, favor_first=self._spec.truncation_favors == "first")
        before = [*self._start, *first[:n_first], *middle]
        whole = [*before, *(second or ())[:n_second], *self._end] or [0]  # a network cannot read nothing
        if last is not None and len(whole) <= last:
            whole += self._end
        return whole, len(whole if second is None else before)

    def _split_texts(self, texts: list[str | Pair]) -> list[Ids]:
        """Return the tokens of texts, and of both texts of each pair, without special tokens."""
        return self._split([part for text in texts for part in ((text,) if isinstance(text, str) else text)])

    def _split(self, texts: list[str]) -> list[Ids]:
        """Return the tokens of texts without special tokens."""
        try:
            encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:  # Rust's strings cannot hold surrogates: pairs are combined, lone ones replaced
            texts = [text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for text in texts]
            encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]


def truncate_pair(n_first: int, n_second: int, budget: int, *, favor_first: bool) -> tuple[int, int]:
    """Return the numbers of tokens to keep of two texts: the longer text is truncated first, then both equally.

    Args:
        n_first: tokens of the first text.
        n_second: tokens of the second text.
        budget: maximum number of tokens.
        favor_first: give the extra token of an odd budget to the first text if both are truncated. Otherwise the longer text gets it; of
            two equally long texts, the second.
    """
    if n_first + n_second <= budget:
        return n_first, n_second
    favors_first = favor_first or n_first > n_second
    share = budget // 2 if favors_first else budget - budget // 2
    n_second = max(budget - n_first, min(n_second, share))
    return budget - n_second, n_second


def concatenate(parts: Sequence[Tokens]) -> Tokens:
    """Return the tokens of all parts, at least one, as one sequence of texts."""
    types = [part.types for part in parts if part.types is not None]
    ends = np.cumsum(np.concatenate([part.lengths() for part in parts]))
    return Tokens(np.concatenate([part.ids for part in parts]), ends, np.concatenate(types) if types else None, parts[0].n_unpooled)


def _batch_texts(texts: Iterable[str | Pair]) -> Iterator[list[str | Pair]]:
    """Yield slices of the texts: many short texts, or a few long ones."""
    return in_batches(texts, lambda text: len(text) if isinstance(text, str) else sum(map(len, text)), _SLICE_TEXTS, _SLICE_CHARACTERS)


def _types(lengths: NDArray[np.int64], n_first: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the token types of all texts: 0 for the first tokens of each, 1 for the rest."""
    position = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return (position >= np.repeat(n_first, lengths)).astype(np.uint8)


def _load_tokenizer(folder: Path, spec: EncoderSpec) -> tokenizers.Tokenizer:
    """Return the checkpoint's own tokenizer without its truncation and padding."""
    require_packages(f"the encoder '{spec.name}'", "dense", "tokenizers")
    import tokenizers

    tokenizer = load_any_tokenizer(folder, spec.name).backend_tokenizer if spec.by_transformers else checkpoint_tokenizer(folder, spec.name)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if spec.lower_case:
        steps = [tokenizers.normalizers.Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])]
        tokenizer.normalizer = tokenizers.normalizers.Sequence(steps)
    if spec.splits_white_space:  # white space at the edges of a text gives no token
        words, marks = tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Metaspace(prepend_scheme="always")
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([words, marks])
    return tokenizer


def _check_sizes(tokenizer: tokenizers.Tokenizer, folder: Path, spec: EncoderSpec, max_tokens: int) -> None:
    config = read_json_object(folder / CONFIG, spec.name)
    n_embedded, n_types = config.get("vocab_size"), config.get("type_vocab_size")
    if not isinstance(n_embedded, int):
        raise ArtifactCorrupt(f"{folder / CONFIG} cannot be read (it has no vocab_size): get the checkpoint of '{spec.name}' again")
    n_tokens = 1 + max(tokenizer.get_vocab(with_added_tokens=not spec.by_transformers).values(), default=-1)
    if n_tokens > n_embedded or (n_embedded >= n_tokens + _SPARE_ROWS and not spec.by_transformers):
        raise ArtifactMismatch(
            f"the tokenizer in {folder} knows {n_tokens} tokens, its network {n_embedded}: they do not belong together; "
            f"get the checkpoint of '{spec.name}' again"
        )
    if (maximum := n_positions(config)) is not None and maximum < max_tokens:
        raise ArtifactMismatch(f"the network in {folder} takes {maximum} tokens, but '{spec.name}' needs {max_tokens}")
    if spec.second_type and n_types in (None, 0, 1):
        raise ArtifactMismatch(f"the network in {folder} has {n_types or 'no'} token type, but '{spec.name}' needs {spec.second_type + 1}")


def _special_tokens(tokenizer: tokenizers.Tokenizer, folder: Path, *, are_needed: bool) -> tuple[Ids, Ids, Ids]:
    """Return the special tokens before a text, between two texts, and after the last text.

    Raises:
        ArtifactMismatch: the tokenizer adds none, but ``are_needed``.
    """
    n_text = len(tokenizer.encode("a", add_special_tokens=False).ids)
    single, pair = tokenizer.encode("a"), tokenizer.encode("a", "a")
    text, texts = ([n for n, is_special in enumerate(found.special_tokens_mask) if not is_special] for found in (single, pair))
    if len(text) != n_text or len(texts) != 2 * n_text or (are_needed and len(text) == len(single.ids)):
        raise ArtifactMismatch(f"the tokenizer in {folder} gives texts no special tokens: it belongs to another kind of network")
    return single.ids[: text[0]], pair.ids[texts[n_text - 1] + 1 : texts[n_text]], single.ids[text[-1] + 1 :]
