"""DPR (Karpukhin et al., 2020): two BERTs, for questions and for passages; CLS pooling, not normalised, compared by inner product.

Source: facebookresearch/DPR of 2020, when the checkpoints and the published vectors were made: ``dpr/models/hf_models.py``,
``dpr/utils/data_utils.py``, ``generate_dense_embeddings.py``. All token types are 0. A passage without a title is its text alone.
U+2019 in questions becomes a straight apostrophe, as in training. ``since_2021`` follows the code after its commits of March 2021 and
February 2022.

The authors name no commits of the checkpoints on Hugging Face's hub. The commits of single-nq are those that other projects pin in their
published code: several projects for passages, at least two independent projects for questions.
"""

from __future__ import annotations

from dataclasses import replace

from wikidx.corpora.passage import Passage
from wikidx.indexer.networks.checkpoints import HubCheckpoint

from .spec import EncoderSpec, Pair


def question(query: str) -> str:
    """Return the question with straight apostrophes."""
    return query.replace("\u2019", "'").strip()


def title_then_text(passage: Passage) -> str | Pair:
    """Return title and text, or the text alone if there is no title."""
    text = passage.text.strip()
    return (passage.title, text) if passage.title else text


def title_then_unquoted_text(passage: Passage) -> str | Pair:
    """Return ``title_then_text`` of the passage without double quotes at the edges of its text."""
    return title_then_text(passage._replace(text=passage.text.strip('"')))


def since_2021(spec: EncoderSpec) -> EncoderSpec:
    """Return an encoder with the settings of the authors' later code; its vectors differ from the published vectors.

    A text shorter than 256 tokens gets an additional separator at position 255, to which all its tokens attend. Double quotes at the
    edges of a passage's text are dropped.
    """
    return replace(
        spec, name=f"{spec.name}-since-2021", passage_text=title_then_unquoted_text, extra_sep_position=spec.max_passage_tokens - 1
    )


SPEC = EncoderSpec(
    name="dpr",
    query_checkpoint=HubCheckpoint("facebook/dpr-question_encoder-single-nq-base", "d04a52f6d2f96c60117a925e8c24c4043a75f265"),
    passage_checkpoint=HubCheckpoint("facebook/dpr-ctx_encoder-single-nq-base", "bb21a3c2b1656d60c6a8e920283bc40dabddadb8"),
    query_class="DPRQuestionEncoder",
    passage_class="DPRContextEncoder",
    dim=768,
    pooling="cls",
    normalize=False,
    max_query_tokens=256,
    max_passage_tokens=256,
    query_text=question,
    passage_text=title_then_text,
    truncation_favors="first",
)
MULTISET = replace(
    SPEC,
    name="dpr-multiset",
    query_checkpoint=HubCheckpoint("facebook/dpr-question_encoder-multiset-base", "5325e4ee906435291d63046f535476cb3fc60d43"),
    passage_checkpoint=HubCheckpoint("facebook/dpr-ctx_encoder-multiset-base", "fdb3d46584386d2f20aa00724ae31cebc348d16b"),
)
SINCE_2021 = since_2021(SPEC)
