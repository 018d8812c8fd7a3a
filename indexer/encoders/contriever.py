"""Contriever (Izacard et al., 2022): BERT, mean pooling over non-padding tokens, not normalised, compared by inner product.

Source: facebookresearch/contriever, ``src/contriever.py``, ``generate_passage_embeddings.py``, ``passage_retrieval.py``. The maximum
lengths are those of its scripts. "Contriever" usually means the checkpoint fine-tuned on MS MARCO, here ``SPEC``; ``BASE`` is the
published checkpoint without fine-tuning.
"""

from __future__ import annotations

from functools import partial

from wikidx.corpora.passage import title_and_text

from .spec import hub_encoder

_of = partial(hub_encoder, dim=768, pooling="mean", normalize=False, max_tokens=512, passage_text=title_and_text, by_transformers=False)
SPEC = _of("contriever", "facebook/contriever-msmarco@abe8c1493371369031bcb1e02acb754cf4e162fa")
BASE = _of("contriever-base", "facebook/contriever@2bd46a25019aeea091fd42d1f0fd4801675cf699")
