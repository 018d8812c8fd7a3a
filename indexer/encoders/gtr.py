"""GTR (Ni et al., 2022): T5 encoder, mean pooling over non-padding tokens, linear projection, L2-normalised.

Sources: the files of sentence-transformers/gtr-t5-*; for the format of Wikipedia passages, princeton-nlp/ALCE, ``retrieval.py``. The
weights are stored in float16. T5's computation can overflow float16; therefore its default precision on a GPU is bfloat16.
"""

from __future__ import annotations

from wikidx.corpora.passage import Passage

from .spec import EncoderSpec, hub_encoder


def title_above_text(passage: Passage) -> str:
    """Return title and text, each on its own line."""
    return f"{passage.title}\n{passage.text}"


def _of_size(name: str, size: str, revision: str) -> EncoderSpec:
    return hub_encoder(
        name,
        f"sentence-transformers/gtr-t5-{size}@{revision}",
        dim=768,
        pooling="mean",
        dense=("2_Dense",),
        max_tokens=512,
        passage_text=title_above_text,
        splits_white_space=True,
        by_transformers=False,
        gpu_dtype="bfloat16",
    )


SPEC = _of_size("gtr", "base", "7027e9594267928589816394bdd295273ddc0739")
LARGE = _of_size("gtr-large", "large", "a2c8ac47f998531948d4cbe32a0b577a7037a5e3")
XL = _of_size("gtr-xl", "xl", "23a8d667a1ad2578af181ce762867003c498d1bf")
XXL = _of_size("gtr-xxl", "xxl", "73f2a9156a3dcc2194dfdb2bf201cd7d17e17884")
