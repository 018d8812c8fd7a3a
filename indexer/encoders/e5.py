"""E5-base-v2 (Wang et al., 2022): BERT, mean pooling over non-padding tokens, L2-normalised, with a prefix that labels each text.

Source: the model card of intfloat/e5-base-v2. The card does not mention titles. Passages have the format of FlashRAG's and Search-R1's
corpora, to match their published indexes: the title in double quotes, then the text on a new line.
"""

from __future__ import annotations

from wikidx.corpora.passage import Passage

from .popular import hub_encoder


def contents(passage: Passage) -> str:
    """Return the passage in FlashRAG's and Search-R1's format, or the text alone if there is no title."""
    return f'"{passage.title}"\n{passage.text}' if passage.title else passage.text


SPEC = hub_encoder(
    "e5",
    "intfloat/e5-base-v2@f52bf8ec8c7124536f0efb74aca902b2995e5bcd",
    dim=768,
    max_tokens=512,
    pooling="mean",
    query_prompt="query: ",
    passage_prompt="passage: ",
    passage_text=contents,
    by_transformers=False,
)
