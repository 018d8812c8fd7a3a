"""BGE-base-en-v1.5 (Xiao et al., 2024): BERT, CLS pooling, L2-normalised, with an instruction before queries.

Source: the model card of BAAI/bge-base-en-v1.5. The card does not mention titles. Passages are formatted as for ``e5``.
"""

from __future__ import annotations

from .e5 import contents
from .popular import hub_encoder

SPEC = hub_encoder(
    "bge",
    "BAAI/bge-base-en-v1.5@a5beb1e3e68b9ab74eb54cfd186867f64f240e1a",
    dim=768,
    max_tokens=512,
    pooling="cls",
    query_prompt="Represent this sentence for searching relevant passages: ",
    passage_text=contents,
    by_transformers=False,
)
