"""MaxSim: exact late interaction between the vectors of a query's and a passage's tokens, as ColBERT scores (Khattab and Zaharia, 2020).

A checkpoint is in PyLate's format: a transformer, linear layers over the vector of each token, and the settings of ``TokenSettings``.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from wikidx.base.errors import ArtifactMismatch, OptionError
from wikidx.base.validation import options
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Scores
from wikidx.indexer.networks.checkpoints import HubCheckpoint, dense_files, locate
from wikidx.indexer.networks.dense import apply_dense, load_dense
from wikidx.indexer.networks.module_folders import MODULES, SETTINGS, optional_json, read_modules, transformer_settings
from wikidx.indexer.networks.network import Ids
from wikidx.indexer.networks.tokenizers import checkpoint_tokenizer, load_any_tokenizer

from .checkpoint import RerankerNetwork, RerankerSpec, windows

if TYPE_CHECKING:
    import torch

_PAIRS = 256  # pairs whose similarities are computed together

_Length = Annotated[int, Field(ge=4)]


@options
class TokenSettings:
    """PyLate's settings of a checkpoint, with its defaults.

    Attributes:
        query_prefix, document_prefix: token behind the first one of each query or passage; "": none.
        query_length, document_length: maximum tokens of each, special tokens and prefix included.
        do_query_expansion: fill queries up with mask tokens, whose vectors count.
        attend_to_expansion_tokens: let the other tokens attend to these.
        skiplist_words: tokens whose vectors do not count in a passage.
    """

    query_prefix: str = "[Q] "
    document_prefix: str = "[D] "
    query_length: _Length = 32
    document_length: _Length = 180
    do_query_expansion: bool = True
    attend_to_expansion_tokens: bool = False
    skiplist_words: Sequence[str] = tuple(string.punctuation)


class MaxSim(RerankerNetwork):
    """A ColBERT checkpoint on a device; thread-safe.

    The score of a passage is the sum, over the tokens of the query, of the highest cosine between the token's vector and those of the
    passage's tokens. Vectors are computed in each call, and not stored.

    Args:
        spec: the checkpoint; ``max_tokens`` is a further limit of queries and passages.
        device: "auto" (the first GPU, else the CPU) or the name of a torch device.

    Raises:
        ArtifactMismatch: the checkpoint is not in PyLate's format.
        IdxError: see ``RerankerNetwork``.
    """

    def __init__(self, spec: RerankerSpec, device: str = "cpu") -> None:
        super().__init__("AutoModel", spec, device)
        folder, name = self.folder, spec.name
        self._settings = settings = _read_settings(folder, name)
        layers, _ = load_dense(_find_layers(spec, folder), self.module.config.hidden_size, name, of_tokens=True)
        self._layers = self.place(layers)
        self._queries = self._tokens(settings.query_prefix, settings.query_length)
        self._passages = self._tokens(settings.document_prefix, settings.document_length)
        skipped = (self._passages.tokenizer.token_to_id(word) for word in settings.skiplist_words)
        self._uncounted = [-1, *(token for token in skipped if token is not None)]  # -1: padding
        self._expansion = _expansion_token(folder, name)

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        """Return a score for each pair ``(queries[i], passages[i])``, float32 of shape (n,).

        Raises:
            DeadlineExceeded: the search is cancelled; see ``cancellation``.
            IdxError: the device has too little memory, or fails.
        """
        scores = np.empty(len(queries), dtype=np.float32)
        for window in windows(len(queries)):
            scores[window] = self._score(queries[window], [self._spec.passage_text(passage) for passage in passages[window]])
        return scores

    def _score(self, queries: Sequence[str], texts: Sequence[str]) -> Scores:
        """Return the scores of pairs; each distinct query and text is encoded once."""
        distinct, query_numbers = _number(queries)
        query_vectors = self._query_vectors(self._queries.split(distinct))
        distinct, text_numbers = _number(texts)
        ids = self._passages.split(distinct)
        scores, places = np.empty(len(queries), dtype=np.float32), np.empty(len(ids), dtype=np.int64)
        for batch in self.batches(np.array([len(text) for text in ids])):
            in_batch = [ids[number] for number in batch]
            vectors = self.compute(self._vectors, self.pad(in_batch))  # (texts, tokens, components)
            padded = [[*text, *[-1] * (vectors.shape[1] - len(text))] for text in in_batch]
            is_counted = ~np.isin(padded, self._uncounted)
            places[batch] = np.arange(len(batch))
            pairs = np.flatnonzero(np.isin(text_numbers, batch))
            for some in np.split(pairs, range(_PAIRS, len(pairs), _PAIRS)):
                place = places[text_numbers[some]]
                scores[some] = self._similarities(query_vectors[query_numbers[some]], vectors[place], is_counted[place])
        return scores

    def _query_vectors(self, ids: Sequence[Ids]) -> torch.Tensor:
        """Return the vectors of queries, (n, tokens, components), with zeros after a query's last token."""
        from torch.nn.utils.rnn import pad_sequence

        n_own, length = np.array([len(query) for query in ids]), self._queries.max_tokens
        if self._settings.do_query_expansion:
            ids = [[*query, *[self._expansion] * (length - len(query))] for query in ids]
        lengths = np.array([len(query) for query in ids])
        n_attended = lengths if self._settings.attend_to_expansion_tokens else n_own
        vectors: dict[int, torch.Tensor] = {}
        for batch in self.batches(lengths):
            padded = self.pad([ids[number] for number in batch], n_attended=n_attended[batch])
            computed = self.compute(self._vectors, padded)
            vectors |= {number: row[: lengths[number]] for number, row in zip(batch.tolist(), computed, strict=True)}
        return pad_sequence([vectors[number] for number in range(len(ids))], batch_first=True)

    def _vectors(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        from torch.nn import functional

        hidden = self.module(**batch).last_hidden_state.float()
        return functional.normalize(apply_dense(self._layers, hidden), dim=-1)

    def _similarities(self, queries: torch.Tensor, passages: torch.Tensor, is_counted: NDArray[np.bool_]) -> Scores:
        """Return the scores of pairs of vectors (n, tokens, components); a passage none of whose tokens counts has the score 0."""
        import torch

        with self.computing(f"{len(queries):,} pairs"):
            cosines = queries @ passages.transpose(1, 2)
            uncounted = torch.from_numpy(~is_counted).to(self.device)
            highest = cosines.masked_fill(uncounted[:, None], -torch.inf).amax(dim=2)
            scores: Scores = highest.nan_to_num(neginf=0.0).sum(dim=1).cpu().numpy()
        return scores

    def _tokens(self, prefix: str, length: int) -> _Tokens:
        return _Tokens(self.folder, self._spec.name, prefix, min(length, self.max_tokens or length))


class _Tokens:
    """The tokenizer of one side, which puts the prefix behind the first token.

    Raises:
        ArtifactMismatch: the prefix is no token.
    """

    def __init__(self, folder: Path, name: str, prefix: str, max_tokens: int) -> None:
        self.tokenizer, self.max_tokens = checkpoint_tokenizer(folder, name), max_tokens
        marker = self.tokenizer.token_to_id(prefix)
        if prefix and marker is None:
            raise ArtifactMismatch(f"the tokenizer in {folder} has no token {prefix!r}, with which {SETTINGS} marks texts")
        self._prefix = [marker] if prefix and marker is not None else []
        self._lowers = bool(transformer_settings(folder, name).get("do_lower_case"))
        self.tokenizer.enable_truncation(max_tokens - len(self._prefix))
        self.tokenizer.no_padding()

    def split(self, texts: Sequence[str]) -> list[Ids]:
        """Return the tokens of each text."""
        stripped = [text.strip().lower() if self._lowers else text.strip() for text in texts]
        return [[*text.ids[:1], *self._prefix, *text.ids[1:]] for text in self.tokenizer.encode_batch_fast(stripped)]


def _number(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct texts, and the number of each text among them."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return list(numbers), np.array([numbers[text] for text in texts])


def _read_settings(folder: Path, name: str) -> TokenSettings:
    stored = optional_json(folder, SETTINGS, name)
    known = (field.name for field in dataclasses.fields(TokenSettings))
    values: Mapping[str, Any] = {field: stored[field] for field in known if stored.get(field) is not None}
    try:
        return TokenSettings(**values)
    except OptionError as error:
        raise ArtifactMismatch(f"{folder / SETTINGS}: {error}") from error


def _expansion_token(folder: Path, name: str) -> int:
    """Return the token that fills up queries: the mask, or the end of a text if there is none."""
    tokenizer = load_any_tokenizer(folder, name)
    ids = tokenizer.mask_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id
    return next((token for token in ids if token is not None), 0)


def _find_layers(spec: RerankerSpec, folder: Path) -> list[Path]:
    """Return the folders of the linear layers, downloaded if they are not on this machine.

    Raises:
        ArtifactMismatch: the checkpoint has other modules than a transformer and linear layers.
        ArtifactCorrupt: ``modules.json`` cannot be read.
    """
    modules = read_modules(folder, spec.name)
    if modules is None:
        raise ArtifactMismatch(f"{folder} has no {MODULES}: it is no ColBERT checkpoint in PyLate's format")
    kinds, paths = [module.kind for module in modules], [module.path for module in modules]
    is_known = kinds[:1] == ["Transformer"] and set(kinds[1:]) == {"Dense"}
    if not is_known or paths[0] or any(Path(path).name != path for path in paths):
        listed = ", ".join(kinds) or "nothing"
        raise ArtifactMismatch(
            f"{folder / MODULES} lists {listed}: a ColBERT checkpoint in PyLate's format has a Transformer and Dense layers"
        )
    folder = locate(spec.checkpoint, spec.name, dense_files(paths[1:]))
    return [folder / path for path in paths[1:]]


GTE_MODERNCOLBERT = partial(MaxSim, RerankerSpec(name="moderncolbert", checkpoint=HubCheckpoint("lightonai/GTE-ModernColBERT-v1", "main")))
