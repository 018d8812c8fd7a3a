"""SimLM (Wang et al., 2023): BERT, CLS pooling, L2-normalised; title and text as a pair with token types 0 and 1.

Source: microsoft/unilm, ``simlm/src/models/biencoder_model.py``, ``simlm/src/inference``. Maximum lengths:
``simlm/scripts/dpr/encode_wiki.sh``. The only public retriever is trained on MS MARCO. ``simlm-base-wiki100w`` is only pre-trained, and
useless for retrieval. Published results name no commit of the checkpoint; the main branch is used.
"""

from __future__ import annotations

from wikidx.corpora.passage import Passage

from .spec import Pair, hub_encoder


def title_then_text(passage: Passage) -> Pair:
    """Return title and text. A separator follows even an empty title."""
    return passage.title, passage.text


SPEC = hub_encoder(
    "simlm",
    "intfloat/simlm-base-msmarco-finetuned",
    dim=768,
    pooling="cls",
    max_tokens=192,
    max_query_tokens=32,
    passage_text=title_then_text,
    second_type=1,
    by_transformers=False,
)
