"""The usual mistakes, made on purpose with our own tokenizer and model: one entry for each that ``mistakes.json`` lists the cost of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tokenizers
import torch
from safetensors.torch import load_file
from torch.nn import functional

from tests.indexer.encoders.golden import Golden, in_batches, tokens_of
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders.dpr import since_2021
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec, Pair, Side, Tokens
from wikidx.indexer.encoders.tokenizing import Ids, Tokenizer
from wikidx.indexer.networks.network import Batch
from wikidx.indexer.networks.network_size import Dtype

# Tokenizers


class CutAtTheEnd(Tokenizer):
    """Cuts after the special tokens were added."""

    def _encode_text(self, ids: Ids) -> tuple[Ids, int]:
        cut = [*self._start, *ids, *self._end][: self._max_tokens]
        return cut, len(cut)

    def _encode_pair(self, first: Ids, second: Ids) -> tuple[Ids, int]:
        before = [*self._start, *first, *self._end]
        cut = [*before, *second, *self._end][: self._max_tokens]
        return cut, min(len(before), len(cut))


class OnlySecondCut(Tokenizer):
    """Cuts the second text alone where that is enough."""

    def _encode_pair(self, first: Ids, second: Ids) -> tuple[Ids, int]:
        room = self._max_tokens - len(first) - 3
        return super()._encode_pair(first, second[:room] if room > 0 else second)


class Cased(Tokenizer):
    def __init__(self, spec: EncoderSpec, side: Side) -> None:
        super().__init__(spec, side)
        self._tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False)


class AsInTokenizerJson(Tokenizer):
    """Splits as GTR's tokenizer.json says, which is not quite what SentencePiece does."""

    def __init__(self, spec: EncoderSpec, side: Side) -> None:
        super().__init__(spec, side)
        self._tokenizer = tokenizers.Tokenizer.from_file(str(spec.folder(side) / "tokenizer.json"))


class WithoutEnd(Tokenizer):
    def _encode_text(self, ids: Ids) -> tuple[Ids, int]:
        return super()._encode_text(ids)[0][:-1], 0


class PaddedTo256(Tokenizer):
    """Takes padding for text."""

    def _encode_pair(self, first: Ids, second: Ids) -> tuple[Ids, int]:
        ids, n_first = super()._encode_pair(first, second)
        return ids + [0] * (256 - len(ids)), n_first

    def _encode_text(self, ids: Ids) -> tuple[Ids, int]:
        single, _ = super()._encode_text(ids)
        return single + [0] * (256 - len(single)), 0


class AllOfTypeOne(Tokenizer):
    def queries(self, queries: Any) -> Tokens:  # noqa: ANN401 - as handed on
        tokens = super().queries(queries)
        return tokens._replace(types=np.ones(len(tokens.ids), dtype=np.uint8))


# Models


class Unmasked(Model):
    """Takes padding for text where tokens look at each other, and pools rightly."""

    def _hidden_states(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return super()._hidden_states({name: tensor for name, tensor in inputs.items() if name != "attention_mask"})


class UnmaskedThroughout(Model):
    def pad_tokens(self, tokens: Tokens, numbers: Any = None) -> Batch:  # noqa: ANN401 - as handed on
        return super().pad_tokens(tokens, numbers)._replace(mask=None)


class PaddingPooled(Model):
    def _pool(self, hidden: torch.Tensor, is_pooled: torch.Tensor | None) -> torch.Tensor:
        return hidden.mean(dim=1)


class MaxPooled(Model):
    def _pool(self, hidden: torch.Tensor, is_pooled: torch.Tensor | None) -> torch.Tensor:
        return hidden.max(dim=1).values


class LastPooled(Model):
    def _pool(self, hidden: torch.Tensor, is_pooled: torch.Tensor | None) -> torch.Tensor:
        return hidden[:, -1]


class InnerPooled(Model):
    """Leaves out the special tokens at both ends."""

    def _pool(self, hidden: torch.Tensor, is_pooled: torch.Tensor | None) -> torch.Tensor:
        return hidden[:, 1:-1].mean(dim=1)


class HeadPooled(Model):
    """Uses the head of BERT's second training task."""

    def __init__(self, spec: EncoderSpec, side: Side, device: str = "cpu", dtype: Dtype = "float32") -> None:
        super().__init__(spec, side, device, dtype)
        stored = load_file(spec.folder(side) / "model.safetensors")
        (prefix,) = [name.removesuffix("pooler.dense.bias") for name in stored if name.endswith("pooler.dense.bias")]
        self._weight, self._bias = (stored[f"{prefix}pooler.dense.{kind}"].float() for kind in ("weight", "bias"))

    def _pool(self, hidden: torch.Tensor, is_pooled: torch.Tensor | None) -> torch.Tensor:
        return torch.tanh(functional.linear(hidden[:, 0], self._weight, self._bias))


class NormalizedFirst(Model):
    def _pool(self, hidden: torch.Tensor, is_pooled: torch.Tensor | None) -> torch.Tensor:
        return functional.normalize(super()._pool(hidden, is_pooled), dim=1)


class WithoutDistances(Model):
    def __init__(self, spec: EncoderSpec, side: Side, device: str = "cpu", dtype: Dtype = "float32") -> None:
        super().__init__(spec, side, device, dtype)
        torch.nn.init.zeros_(self.module.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight)


# Specs

Change = Callable[[EncoderSpec], EncoderSpec]


def changed(**fields: Any) -> Change:  # noqa: ANN401 - any field of the spec
    return lambda spec: dataclasses.replace(spec, **fields)


def written(passage_text: Callable[[Passage], str | Pair], **fields: Any) -> Change:  # noqa: ANN401 - any field of the spec
    return changed(passage_text=passage_text, **fields)


def swapped(spec: EncoderSpec) -> EncoderSpec:
    return dataclasses.replace(
        spec,
        query_checkpoint=spec.passage_checkpoint,
        query_class=spec.passage_class,
        passage_checkpoint=spec.query_checkpoint,
        passage_class=spec.query_class,
    )


class Mistake(NamedTuple):
    """A mistake and how it is made.

    Attributes:
        spec, tokenizer, model, dtype: the incorrect parts.
        size: texts in a batch.
        side: whose vectors are wrong.
        is_rounding: a matter of precision, so that its cost equals the listed one only roughly.
        is_listed_for_other_rows: the listed cost is for rows that are not in ``work``.
    """

    spec: Change = changed()
    tokenizer: type[Tokenizer] = Tokenizer
    model: type[Model] = Model
    dtype: Dtype = "float32"
    size: int = 1  # of a batch
    side: Side = "passage"
    is_rounding: bool = False
    is_listed_for_other_rows: bool = False


def made(golden: Golden, mistake: Mistake) -> Vectors:
    spec = mistake.spec(golden.spec())
    tokens = tokens_of(mistake.tokenizer(spec, mistake.side), golden.texts(mistake.side))
    return in_batches(mistake.model(spec, mistake.side, dtype=mistake.dtype), tokens, mistake.size)


_NO_TITLE = Mistake(written(lambda p: p.text))
_SPACED = Mistake(written(lambda p: f"{p.title} {p.text}"))
_STOPPED = Mistake(written(lambda p: f"{p.title}. {p.text}"))
_PAIR = written(lambda p: (p.title, p.text), second_type=1)
_UNMASKED = Mistake(model=Unmasked, size=8)

MISTAKES: dict[str, dict[str, Mistake]] = {
    "contriever": {
        "fp16 weights+compute": Mistake(dtype="float16", is_rounding=True),
        "bf16": Mistake(dtype="bfloat16", is_rounding=True),
        "L2 normalised": Mistake(changed(normalize=True)),
        "CLS pooling": Mistake(changed(pooling="cls")),
        "mean over padding too (batch 8)": Mistake(model=PaddingPooled, size=8),
        "attention_mask all ones (batch 8)": _UNMASKED,
        "mean without [CLS]/[SEP]": Mistake(model=InnerPooled),
        "max pooling": Mistake(model=MaxPooled),
        "no title": _NO_TITLE,
        'title + ". " + text': _STOPPED,
        'title + "\\n" + text': Mistake(written(lambda p: f"{p.title}\n{p.text}")),
        '"title" in quotes + \\n': Mistake(written(lambda p: f'"{p.title}"\n{p.text}')),
        "pair (title,text), types 0/1": Mistake(_PAIR),
        "pair, types 0": Mistake(written(lambda p: (p.title, p.text))),
        "max_length 256": Mistake(changed(max_passage_tokens=256)),
        "max_length 510": Mistake(changed(max_passage_tokens=510)),
        "no final [SEP] on truncation": Mistake(tokenizer=CutAtTheEnd),
        "do_lower_case False": Mistake(tokenizer=Cased),
        'query: "query: " prefix': Mistake(changed(query_prompt="query: "), side="query"),
        "query: ’ replaced by '": Mistake(changed(query_text=lambda q: q.replace("’", "'")), side="query"),
        "query max_length 64": Mistake(changed(max_query_tokens=64), side="query"),
    },
    "dpr": {
        "HF tokenizer ids, types forced 0": Mistake(written(lambda p: (p.title, p.text), truncation_favors="longer")),
        "HF tokenizer, types 0/1 as returned": Mistake(written(lambda p: (p.title, p.text), truncation_favors="longer", second_type=1)),
        "HEAD (trailing [SEP] at 255 attended, quotes stripped)": Mistake(since_2021),
        "HEAD query (trailing [SEP] at 255)": Mistake(since_2021, side="query"),
        "query ’ not normalised": Mistake(changed(query_text=str.strip), side="query"),
        "mean pooling": Mistake(changed(pooling="mean")),
        "towers swapped (passage)": Mistake(swapped),
        "towers swapped (query)": Mistake(swapped, side="query"),
        "BERT pooler (dense+tanh)": Mistake(model=HeadPooled),
        "L2 normalised": Mistake(changed(normalize=True)),
        "attention_mask all ones, padded to 256": Mistake(tokenizer=PaddedTo256),
        "attention_mask all ones (batch 8, longest)": _UNMASKED,
        'single string title+" "+text': _SPACED,
        "no title": _NO_TITLE,
        "max_length 512": Mistake(changed(max_passage_tokens=512)),
        "max_length 128": Mistake(changed(max_passage_tokens=128)),
        "cut at 256 without forcing [SEP]": Mistake(tokenizer=CutAtTheEnd),
        "no edge strip/quote-strip variant (TSV strip only)": Mistake(
            written(lambda p: (p.title, p.text.strip('"')) if p.title else p.text.strip('"'))
        ),
        "query max 64": Mistake(changed(max_query_tokens=64), side="query"),
    },
    "gtr": {
        "ST6 default dtype": Mistake(dtype="float16", is_rounding=True),
        "Dense after normalise (then normalised)": Mistake(model=NormalizedFirst),
        "not normalised": Mistake(changed(normalize=False)),
        "first token pooling": Mistake(changed(pooling="cls")),
        "last token (</s>) pooling": Mistake(model=LastPooled),
        "mean over padding too (batch 8)": Mistake(model=PaddingPooled, size=8),
        "attention_mask all ones (batch 8)": _UNMASKED,
        'title + " " + text': _SPACED,
        'title + ". " + text': _STOPPED,
        "no title": _NO_TITLE,
        "no </s>": Mistake(tokenizer=WithoutEnd),
        "max_length 256": Mistake(changed(max_passage_tokens=256)),
        "truncated without </s>": Mistake(tokenizer=CutAtTheEnd),
        "lower-cased": Mistake(written(lambda p: f"{p.title}\n{p.text}".lower())),
        "relative position bias lost": Mistake(model=WithoutDistances),
        "query: ids of tokenizer.json / transformers 4 (zero-width space at the end)": Mistake(
            changed(query_text=str.strip), tokenizer=AsInTokenizerJson, side="query"
        ),
        "query: fp16 model": Mistake(dtype="float16", side="query", is_rounding=True),
        "bf16 model": Mistake(dtype="bfloat16", is_rounding=True),
    },
    "simlm": {
        "token types all 0": Mistake(changed(second_type=0)),
        "mean pooling": Mistake(changed(pooling="mean")),
        "pooler_output": Mistake(model=HeadPooled),
        "not normalised": Mistake(changed(normalize=False)),
        'single string title+" "+text': _SPACED,
        "text first, title second": Mistake(written(lambda p: (p.text, p.title))),
        "no title (single text)": _NO_TITLE,
        'title "-" for empty': Mistake(written(lambda p: (p.title or "-", p.text))),
        "empty title -> single text": Mistake(written(lambda p: (p.title, p.text) if p.title else p.text)),
        "truncation only_second where possible (else longest)": Mistake(tokenizer=OnlySecondCut, is_listed_for_other_rows=True),
        "max_length 144 instead of 192": Mistake(changed(max_passage_tokens=144)),
        "max_length 256": Mistake(changed(max_passage_tokens=256)),
        "attention_mask all ones (batch 8)": _UNMASKED,
        "query max 64": Mistake(changed(max_query_tokens=64), side="query"),
        "query types 1": Mistake(tokenizer=AllOfTypeOne, side="query"),
    },
    "minilm": {
        "not normalised": Mistake(changed(normalize=False)),
        "CLS pooling": Mistake(changed(pooling="cls")),
        "mean over padding too (batch 8)": Mistake(model=PaddingPooled, size=8),
        "attention_mask all ones (batch 8)": _UNMASKED,
        "mean without [CLS]/[SEP]": Mistake(model=InnerPooled),
        "max_length 128": Mistake(changed(max_passage_tokens=128)),
        "max_length 512": Mistake(changed(max_passage_tokens=512)),
        "no title": _NO_TITLE,
        'title + ". " + text': _STOPPED,
        "pair, types 0/1": Mistake(_PAIR),
    },
}
