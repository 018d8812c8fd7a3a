"""MaxSim over ColBERT checkpoints in PyLate's format: as sentence-transformers reads them, and as PyLate documents its settings."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

from tests.indexer.encoders.tiny import VOCABULARY, bert_config, save_bert_tokenizer
from tests.retrievers.test_cross_encoder import SIZES, save_bert
from wikidx.base.errors import ArtifactCorrupt, ArtifactMismatch, InputError
from wikidx.corpora.passage import Passage, title_and_text
from wikidx.indexer.base import Scores
from wikidx.retrievers.rerankers import maxsim
from wikidx.retrievers.rerankers.checkpoint import RerankerSpec
from wikidx.retrievers.rerankers.maxsim import MaxSim
from wikidx.retrievers.rerankers.opening import open_reranker

QUERIES = ["the river nile", "of a", "nile " * 60, "7 rivers: a river, of 4", "-"]
PASSAGES = [
    Passage("1", "Nile", "the river of the nile."),
    Passage("2", "", "a river, 4 rivers: of the nile"),
    Passage("3", "The river", "nile of a river, " * 80),
    Passage("4", "River", ""),
    Passage("5", "", "...,"),
]
PAIRS = [(query, passage) for query in QUERIES for passage in PASSAGES]
SETTINGS: dict[str, Any] = {
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "query_length": 32,
    "document_length": 180,
    "attend_to_expansion_tokens": False,
    "skiplist_words": list(string.punctuation),
    "do_query_expansion": True,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "as saved": {},
    "attending": {"attend_to_expansion_tokens": True},
    "no expansion": {"do_query_expansion": False},
    "no skiplist": {"skiplist_words": []},
    "short": {"query_length": 8, "document_length": 20},
    "no prefix": {"query_prefix": "", "document_prefix": ""},
}


def save_bert_base(folder: Path) -> int:
    config = bert_config()
    config.vocab_size = len(VOCABULARY) + 2
    transformers.BertModel(config).eval().save_pretrained(folder)
    return int(config.hidden_size)


def save_modernbert_base(folder: Path) -> int:
    config = transformers.ModernBertConfig(
        vocab_size=len(VOCABULARY) + 2, local_attention=16, pad_token_id=0, cls_token_id=2, sep_token_id=3, **SIZES
    )
    config.initializer_range = config.initializer_cutoff_factor = 1.0
    transformers.ModernBertModel(config).eval().save_pretrained(folder)
    return int(config.hidden_size)


def save_colbert(folder: Path, save_base: Callable[[Path], int] = save_bert_base, dims: tuple[int, ...] = (8,), **changed: Any) -> Path:  # noqa: ANN401
    """Save a checkpoint as PyLate does: the prefixes are tokens, and linear layers without a bias follow the transformer."""
    torch.manual_seed(0)
    save_bert_tokenizer(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["[Q] ", "[D] "])
    tokenizer.save_pretrained(folder)
    width = save_base(folder)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, dim in enumerate(dims, 1):
        (folder / f"{number}_Dense").mkdir()
        config = {"in_features": width, "out_features": dim, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
        (folder / f"{number}_Dense" / "config.json").write_text(json.dumps(config))
        save_file({"linear.weight": torch.randn(dim, width)}, folder / f"{number}_Dense" / "model.safetensors")
        modules.append({"idx": number, "name": str(number), "path": f"{number}_Dense", "type": "pylate.models.Dense.Dense"})
        width = dim
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 179, "do_lower_case": False}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "ColBERT", **SETTINGS, **changed}))
    return folder


def scored(folder: Path, pairs: list[tuple[str, Passage]] = PAIRS) -> Scores:
    reranker = open_reranker(str(folder))
    assert isinstance(reranker, MaxSim)
    return reranker.score([query for query, _ in pairs], [passage for _, passage in pairs])


def vectors_by_hand(folder: Path, text: str, settings: dict[str, Any], side: str) -> tuple[torch.Tensor, list[int]]:
    """Vectors of the tokens that count, of one text without padding, by PyLate's documentation; and the tokens."""
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModel.from_pretrained(folder)
    prefix, length = settings[f"{side}_prefix"], settings[f"{side}_length"]
    ids = tokenizer(text, truncation=True, max_length=length - bool(prefix))["input_ids"]
    ids = [ids[0], *([tokenizer.convert_tokens_to_ids(prefix)] if prefix else []), *ids[1:]]
    n_own = len(ids)
    if side == "query" and settings["do_query_expansion"]:
        ids += [tokenizer.mask_token_id] * (length - n_own)
    n_attended = len(ids) if settings["attend_to_expansion_tokens"] else n_own
    mask = torch.tensor([[1] * n_attended + [0] * (len(ids) - n_attended)])
    with torch.inference_mode():
        hidden = model(torch.tensor([ids]), attention_mask=mask).last_hidden_state[0]
        for dense in sorted(folder.glob("*_Dense")):
            from safetensors.torch import load_file

            weights, config = load_file(dense / "model.safetensors"), json.loads((dense / "config.json").read_text())
            projected = hidden @ weights["linear.weight"].T
            if config["activation_function"].endswith("GELU"):
                projected = torch.nn.functional.gelu(projected)
            if config.get("use_residual"):
                projected = projected + (hidden @ weights["residual.weight"].T if "residual.weight" in weights else hidden)
            hidden = projected
    hidden = hidden / hidden.norm(dim=1, keepdim=True)
    skipped = {tokenizer.convert_tokens_to_ids(word) for word in settings["skiplist_words"]} - {tokenizer.unk_token_id}
    kept = [n for n, token in enumerate(ids) if side == "query" or token not in skipped]
    return hidden[kept], ids


def scored_by_hand(folder: Path) -> Scores:
    settings = json.loads((folder / "config_sentence_transformers.json").read_text())
    queries = {query: vectors_by_hand(folder, query, settings, "query")[0] for query in QUERIES}
    texts = {passage: vectors_by_hand(folder, title_and_text(passage), settings, "document")[0] for passage in PASSAGES}
    return np.array([float((queries[query] @ texts[passage].T).max(dim=1).values.sum()) for query, passage in PAIRS], dtype=np.float32)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("save_base", [save_bert_base, save_modernbert_base])
def test_scores_are_those_of_pylates_settings(tmp_path: Path, variant: str, save_base: Callable[[Path], int]) -> None:
    folder = save_colbert(tmp_path, save_base, **VARIANTS[variant])
    found = scored(folder)
    np.testing.assert_allclose(found, scored_by_hand(folder), rtol=0, atol=2e-5)
    assert found.std() > 0.01  # or anything would be equal


@pytest.mark.parametrize("variant", ["as saved", "attending", "no expansion", "no skiplist"])
def test_scores_are_those_of_sentence_transformers(tmp_path: Path, variant: str) -> None:
    """A reader of checkpoints of PyLate, which itself depends on an older version."""
    import sentence_transformers  # seconds, which other tests need not wait for

    folder = save_colbert(tmp_path, **VARIANTS[variant])
    reference = sentence_transformers.MultiVectorEncoder(str(folder), device="cpu")
    queries = reference.encode_query([query for query, _ in PAIRS])
    passages = reference.encode_document([title_and_text(passage) for _, passage in PAIRS])
    np.testing.assert_allclose(scored(folder), reference.similarity_pairwise(queries, passages).numpy(), rtol=0, atol=2e-5)


def test_a_layer_applies_to_tokens_whatever_it_says_and_has_no_activation_unless_it_says_so(tmp_path: Path) -> None:
    folder = save_colbert(tmp_path)
    expected, file = scored(folder), folder / "1_Dense" / "config.json"
    config = json.loads(file.read_text())
    del config["activation_function"]
    file.write_text(json.dumps(config | {"module_input_name": "sentence_embedding"}))
    np.testing.assert_array_equal(scored(folder), expected)


def test_several_layers_with_residuals_and_activations(tmp_path: Path) -> None:
    folder = save_colbert(tmp_path, dims=(16, 16))
    for number, shapes in ((1, {"linear": (16, 24), "residual": (16, 24)}), (2, {"linear": (16, 16)})):
        file = folder / f"{number}_Dense" / "config.json"
        changed = {"use_residual": True, "activation_function": "torch.nn.modules.activation.GELU"}
        file.write_text(json.dumps(json.loads(file.read_text()) | changed))
        save_file({f"{name}.weight": torch.randn(shape) for name, shape in shapes.items()}, file.parent / "model.safetensors")
    np.testing.assert_allclose(scored(folder), scored_by_hand(folder), rtol=0, atol=2e-5)


def test_each_distinct_text_is_encoded_once_and_neighbours_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_colbert(tmp_path)
    expected = scored(folder)
    np.testing.assert_allclose(np.concatenate([scored(folder, [pair]) for pair in PAIRS[:4]]), expected[:4], rtol=0, atol=1e-5)
    monkeypatch.setattr(maxsim, "_PAIRS", 2)
    reranker = MaxSim(RerankerSpec(name="made", checkpoint=folder))
    n_read, model = list[int](), reranker._network.module
    model.register_forward_pre_hook(lambda _, args, inputs: n_read.append(len(inputs["input_ids"])), with_kwargs=True)
    np.testing.assert_allclose(reranker.score([q for q, _ in PAIRS], [p for _, p in PAIRS]), expected, rtol=0, atol=1e-5)
    assert sum(n_read) == len(QUERIES) + len(PASSAGES)
    assert reranker.score([], []).shape == (0,)


def test_a_passage_none_of_whose_tokens_counts_scores_nothing(tmp_path: Path) -> None:
    skipped = [*string.punctuation, "[CLS]", "[SEP]", "[D] "]
    found = scored(save_colbert(tmp_path, skiplist_words=skipped), [("nile", PASSAGES[4]), ("nile", PASSAGES[0])])
    assert found[0] == 0.0
    assert found[1] > 0.0


def test_texts_are_lowered_if_the_checkpoint_says_so(tmp_path: Path) -> None:
    folder = save_colbert(tmp_path)
    lowered = scored(folder, [("nile", PASSAGES[0])])
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert scored(folder, [("NILE", PASSAGES[0])]) != pytest.approx(lowered)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": True}))
    assert scored(folder, [("NILE", PASSAGES[0])]) == pytest.approx(lowered)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"query_prefix": "[X] "}, "has no token '\\[X\\] ', with which config_sentence_transformers.json marks texts"),
        ({"query_length": "32"}, "config_sentence_transformers.json: query_length is '32': it should be a valid integer"),
        ({"document_length": 1}, "document_length is 1: it should be greater than or equal to 4"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, changed: dict[str, Any], expected: str) -> None:
    with pytest.raises(ArtifactMismatch, match=expected):
        scored(save_colbert(tmp_path, **changed))


def test_other_modules_are_refused(tmp_path: Path) -> None:
    folder = save_colbert(tmp_path)
    modules = json.loads((folder / "modules.json").read_text())
    pooling = {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
    (folder / "modules.json").write_text(json.dumps([modules[0], pooling]))
    with pytest.raises(
        ArtifactMismatch, match=r"lists Transformer, Pooling: a ColBERT checkpoint in PyLate.s format has a Transformer and"
    ):
        scored(folder)
    for corrupt in ("[1", "[1]", '[{"type": 3, "path": ""}]'):
        (folder / "modules.json").write_text(corrupt)
        with pytest.raises(ArtifactCorrupt, match=r"modules.json cannot be read"):
            scored(folder)
    (folder / "modules.json").unlink()
    with pytest.raises(
        InputError, match=r"describes BertModel, which tells no kind of reranker: name it, as in cross-encoder:.* or maxsim:/"
    ):
        scored(folder)
    with pytest.raises(ArtifactMismatch, match=r"has no modules.json: it is no ColBERT checkpoint in PyLate's format"):
        open_reranker(f"maxsim:{folder}")


def test_layers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    folder = save_colbert(tmp_path)
    file = folder / "1_Dense" / "model.safetensors"
    save_file({"linear.weight": torch.ones(8, 5)}, file)
    with pytest.raises(ArtifactMismatch, match=r"1_Dense/model.safetensors holds linear\.weight .8, 5. .* instead of linear\.weight"):
        scored(folder)
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(ArtifactCorrupt, match=r"1_Dense/model.safetensors cannot be read"):
        scored(folder)


def test_a_kind_is_recognised_or_named(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "cross")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({name: value for name, value in config.items() if name != "architectures"}))
    with pytest.raises(InputError, match="describes no architecture, which tells no kind of reranker"):
        open_reranker(str(folder))
    found = open_reranker(f"cross-encoder:{folder}").score(["nile"], PASSAGES[:1])
    (folder / "config.json").write_text(json.dumps(config))
    assert found == open_reranker(str(folder)).score(["nile"], PASSAGES[:1])
