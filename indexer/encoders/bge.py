"""BGE-base-en-v1.5 (Xiao et al., 2024): BERT, CLS pooling, L2-normalised, with an instruction before queries.

Source: the model card of BAAI/bge-base-en-v1.5. The card does not mention titles. Passages are formatted as for ``e5``.
"""

from __future__ import annotations

from .checkpoints import HubCheckpoint
from .e5 import contents
from .spec import EncoderSpec

_BASE_V1_5 = HubCheckpoint("BAAI/bge-base-en-v1.5", "a5beb1e3e68b9ab74eb54cfd186867f64f240e1a")

SPEC = EncoderSpec(
    name="bge",
    query_checkpoint=_BASE_V1_5,
    passage_checkpoint=_BASE_V1_5,
    dim=768,
    pooling="cls",
    normalize=True,
    max_query_tokens=512,
    max_passage_tokens=512,
    query_prompt="Represent this sentence for searching relevant passages: ",
    passage_text=contents,
)
