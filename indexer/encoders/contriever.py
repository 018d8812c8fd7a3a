"""Contriever (Izacard et al., 2022): BERT, mean pooling over non-padding tokens, not normalised, compared by inner product.

Source: facebookresearch/contriever, ``src/contriever.py``, ``generate_passage_embeddings.py``, ``passage_retrieval.py``. The maximum
lengths are those of its scripts. "Contriever" usually means the checkpoint fine-tuned on MS MARCO, here ``SPEC``; ``BASE`` is the
published checkpoint without fine-tuning.
"""

from __future__ import annotations

from dataclasses import replace

from wikidx.corpora.passage import Passage

from .checkpoints import HubCheckpoint
from .spec import EncoderSpec

_MSMARCO = HubCheckpoint("facebook/contriever-msmarco", "abe8c1493371369031bcb1e02acb754cf4e162fa")
_UNSUPERVISED = HubCheckpoint("facebook/contriever", "2bd46a25019aeea091fd42d1f0fd4801675cf699")


def title_and_text(passage: Passage) -> str:
    """Return title and text with a space between them."""
    return f"{passage.title} {passage.text}"


SPEC = EncoderSpec(
    name="contriever",
    query_checkpoint=_MSMARCO,
    passage_checkpoint=_MSMARCO,
    dim=768,
    pooling="mean",
    normalize=False,
    max_query_tokens=512,
    max_passage_tokens=512,
    passage_text=title_and_text,
)
BASE = replace(SPEC, name="contriever-base", query_checkpoint=_UNSUPERVISED, passage_checkpoint=_UNSUPERVISED)
