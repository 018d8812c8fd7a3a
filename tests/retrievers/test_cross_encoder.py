"""Cross-encoders score as the libraries do that their checkpoints are made for: sentence-transformers, and transformers for SimLM's."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from numpy.typing import NDArray

from tests.indexer.encoders.tiny import VOCABULARY, bert_config, save_bert_tokenizer
from wikidx.base.errors import ArtifactCorrupt, ArtifactMismatch, IdxError, InputError, UnknownNameError
from wikidx.corpora.passage import Passage, title_and_text
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Scores
from wikidx.indexer.build import build_index
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.rerankers import checkpoint
from wikidx.retrievers.rerankers.checkpoint import RerankerSpec
from wikidx.retrievers.rerankers.cross_encoder import SIMLM_SPEC, CrossEncoder
from wikidx.retrievers.rerankers.opening import open_reranker

QUERIES = ["the river nile", "of a", "nile " * 300, "", "7 rivers", "ω"]
PASSAGES = [
    Passage("1", "Nile", "the river of the nile."),
    Passage("2", "", "a river, 4 rivers: of the nile"),
    Passage("3", "The river", "nile of a river " * 200),
    Passage("4", "River", ""),
]
PAIRS = [(query, passage) for query in QUERIES for passage in PASSAGES]
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}


def save_bert(folder: Path, n_labels: int = 1) -> Path:
    torch.manual_seed(0)
    save_bert_tokenizer(folder)
    config = bert_config()
    config.num_labels = n_labels
    transformers.BertForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def save_two_labels(folder: Path) -> Path:
    return save_bert(folder, 2)


def save_old_bert(folder: Path) -> Path:
    """As checkpoints were saved that have no ``tokenizer.json``."""
    (save_bert(folder) / "tokenizer.json").unlink()
    return folder


def save_electra(folder: Path) -> Path:
    """With embeddings of another size than the hidden states, as small ones have them."""
    torch.manual_seed(1)
    save_bert_tokenizer(folder)
    config = transformers.ElectraConfig(vocab_size=len(VOCABULARY), embedding_size=16, initializer_range=0.2, num_labels=1, **SIZES)
    transformers.ElectraForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def save_roberta(folder: Path) -> Path:
    """Two separators between the texts, one token type, positions that begin behind the padding token's number, 1."""
    torch.manual_seed(2)
    words = ["<s>", "<pad>", "</s>", "<unk>", "the", "river", "of", "nile", "a", "4", "7"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **names).save_pretrained(folder)
    config = transformers.XLMRobertaConfig(
        vocab_size=len(words), max_position_embeddings=514, type_vocab_size=1, initializer_range=0.2, num_labels=1, **SIZES
    )
    transformers.XLMRobertaForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def save_distilbert(folder: Path) -> Path:
    """A network that knows no token types."""
    torch.manual_seed(3)
    save_bert_tokenizer(folder)
    config = transformers.DistilBertConfig(
        vocab_size=len(VOCABULARY), dim=24, n_layers=2, n_heads=3, hidden_dim=40, initializer_range=0.2, num_labels=1
    )
    transformers.DistilBertForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def save_deberta(folder: Path) -> Path:
    torch.manual_seed(4)
    save_bert_tokenizer(folder)
    config = transformers.DebertaV2Config(
        vocab_size=len(VOCABULARY), relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False, num_labels=1, **SIZES
    )
    config.initializer_range = 0.2
    transformers.DebertaV2ForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def save_modernbert(folder: Path) -> Path:
    """Local attention, which a batch's width must not change."""
    torch.manual_seed(5)
    save_bert_tokenizer(folder)
    config = transformers.ModernBertConfig(
        vocab_size=len(VOCABULARY), local_attention=16, pad_token_id=0, cls_token_id=2, sep_token_id=3, num_labels=1, **SIZES
    )
    config.initializer_range = config.initializer_cutoff_factor = 1.0
    transformers.ModernBertForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def save_qwen3(folder: Path, pad_token_id: int | None = 0) -> Path:
    """A decoder with a classifier, which reads a text's last token."""
    torch.manual_seed(6)
    save_bert_tokenizer(folder)
    sizes = SIZES | {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    config = transformers.Qwen3Config(vocab_size=len(VOCABULARY), pad_token_id=pad_token_id, num_labels=1, initializer_range=0.2, **sizes)
    transformers.Qwen3ForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


SAVED: dict[str, Callable[[Path], Path]] = {
    "bert": save_bert,
    "two labels": save_two_labels,
    "no tokenizer.json": save_old_bert,
    "electra": save_electra,
    "roberta": save_roberta,
    "distilbert": save_distilbert,
    "deberta": save_deberta,
    "modernbert": save_modernbert,
    "qwen3": save_qwen3,
}


def scored(folder: Path, pairs: Sequence[tuple[str, Passage]] = PAIRS) -> Scores:
    encoder = CrossEncoder(RerankerSpec(name="made", checkpoint=folder))
    return encoder.score([query for query, _ in pairs], [passage for _, passage in pairs])


def scored_by_hand(folder: Path, max_tokens: int | None = None) -> Scores:
    """Each pair by itself, without padding, by transformers alone; the logits."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    max_tokens = max_tokens or min(tokenizer.model_max_length, model.config.max_position_embeddings)
    texts = [(query, title_and_text(passage)) for query, passage in PAIRS]
    inputs = [tokenizer(*pair, max_length=max_tokens, truncation="longest_first", return_tensors="pt") for pair in texts]
    takes = inspect.signature(model.forward).parameters
    with torch.inference_mode():
        logits = [model(**{name: ids for name, ids in one.items() if name in takes}).logits[0].numpy() for one in inputs]
    return np.array([row[0] if len(row) == 1 else row[1] - row[0] for row in logits], dtype=np.float32)


def sigmoid(logits: Scores) -> Scores:
    return np.asarray(1 / (1 + np.exp(-logits)), dtype=np.float32)


@pytest.mark.parametrize("kind", SAVED)
def test_scores_are_those_of_single_pairs_without_padding(tmp_path: Path, kind: str) -> None:
    folder = SAVED[kind](tmp_path / "checkpoint")
    expected = scored_by_hand(folder)
    found = scored(folder)
    np.testing.assert_allclose(found, expected if kind == "two labels" else sigmoid(expected), rtol=0, atol=1e-5)
    assert found.std() > 0.01  # or anything would be equal


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert", "qwen3"])
def test_scores_are_those_of_sentence_transformers(tmp_path: Path, kind: str) -> None:
    import sentence_transformers  # seconds, which other tests need not wait for

    folder = SAVED[kind](tmp_path / "checkpoint")
    reference = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    expected = reference.predict([(query, title_and_text(passage)) for query, passage in PAIRS], show_progress_bar=False)
    np.testing.assert_allclose(scored(folder), np.asarray(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize("place", ["config.json", "former config.json", "config_sentence_transformers.json"])
def test_the_activation_is_the_checkpoints(tmp_path: Path, place: str) -> None:
    folder, path = save_bert(tmp_path), "torch.nn.modules.activation.Tanh"
    file = folder / place.removeprefix("former ")
    stored: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    named: dict[str, dict[str, Any]] = {
        "config.json": {"sentence_transformers": {"activation_fn": path}},
        "former config.json": {"sbert_ce_default_activation_function": path},
    }
    file.write_text(json.dumps(stored | named.get(place, {"activation_fn": path})))
    np.testing.assert_allclose(scored(folder), np.tanh(scored_by_hand(folder)), rtol=0, atol=1e-5)
    file.write_text(json.dumps(stored | {"activation_fn": "os.system", "sbert_ce_default_activation_function": "os.system"}))
    with pytest.raises(ArtifactMismatch, match=r"has the activation function os.system: only those of torch.nn"):
        scored(folder)


@pytest.mark.parametrize("file", ["sentence_bert_config.json", "tokenizer_config.json"])
def test_the_maximum_length_is_the_checkpoints(tmp_path: Path, file: str) -> None:
    folder = save_bert(tmp_path)
    stored = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
    (folder / file).write_text(json.dumps(stored | {"max_seq_length": 20, "model_max_length": 20}))
    np.testing.assert_allclose(scored(folder), sigmoid(scored_by_hand(folder, max_tokens=20)), rtol=0, atol=1e-5)


def test_a_decoder_without_a_padding_token_reads_pairs_one_by_one(tmp_path: Path) -> None:
    folder = save_qwen3(tmp_path, pad_token_id=None)
    np.testing.assert_allclose(scored(folder), sigmoid(scored_by_hand(folder)), rtol=0, atol=1e-5)


def test_simlms_reranker_is_read_as_its_authors_do(tmp_path: Path, home: Path) -> None:
    """Query, then "title: text" with "-" for no title, 192 tokens; loaded from local files, without a network."""
    folder = save_electra(home / "checkpoints" / "intfloat" / "simlm-msmarco-reranker" / "main")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    texts = [f"{passage.title if passage.title else '-'}: {passage.text}" for _, passage in PAIRS]
    batch = tokenizer([query for query, _ in PAIRS], text_pair=texts, max_length=192, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        expected = model(**batch).logits[:, 0].numpy()
    found = open_reranker("simlm").score([query for query, _ in PAIRS], [passage for _, passage in PAIRS])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(found - scored(folder)).max() > 1e-3  # another format gives other scores


def test_scores_do_not_depend_on_the_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_bert(tmp_path / "checkpoint")
    together = scored(folder)
    alone = np.concatenate([scored(folder, [pair]) for pair in PAIRS[:8]])
    np.testing.assert_allclose(together[:8], alone, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(checkpoint, "_WINDOW", 5)
    np.testing.assert_allclose(scored(folder), together, rtol=1e-5, atol=1e-5)
    assert scored(folder, []).shape == (0,)


def test_several_threads_at_once(tmp_path: Path) -> None:
    encoder = CrossEncoder(RerankerSpec(name="made", checkpoint=save_bert(tmp_path / "checkpoint")))
    queries, passages = [query for query, _ in PAIRS], [passage for _, passage in PAIRS]
    expected = encoder.score(queries, passages)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: encoder.score(queries, passages), range(12)):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_searcher_reranks_with_a_checkpoint_of_the_users(build: Callable[..., PassageStore], tmp_path: Path) -> None:
    build_index("made", "bm25", build(PASSAGES[:3]))
    folder = save_bert(tmp_path / "checkpoint")
    searcher = open_searcher("made", "bm25", reranker=str(folder))
    (ranking,) = searcher.search_groups([["nile", "rivers"]], SearchOptions(rerank="cross-encoder"))
    scores = dict(zip(["1", "2", "3"], scored(folder, [("nile", passage) for passage in PASSAGES[:3]]).tolist(), strict=True))
    assert [hit.passage.id for hit in ranking] == sorted(scores, key=lambda id_: -scores[id_])
    assert [hit.score for hit in ranking] == pytest.approx(sorted(scores.values(), reverse=True), abs=1e-5)


def test_loading_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = save_bert(tmp_path / "checkpoint")
    capfd.readouterr()
    scored(folder)
    assert capfd.readouterr() == ("", "")


def test_a_checkpoint_without_a_classifier_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_bert_tokenizer(tmp_path)
    transformers.BertModel(bert_config()).save_pretrained(tmp_path)
    with pytest.raises(ArtifactMismatch, match="does not hold the weights of its config.json: missing classifier.bias, classifier.weight"):
        scored(tmp_path)


def test_a_checkpoint_with_three_labels_is_refused(tmp_path: Path) -> None:
    folder = save_bert(tmp_path, 3)
    with pytest.raises(ArtifactMismatch, match="tells 3 labels apart: a cross-encoder for reranking has one or two"):
        scored(folder)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_corrupt_files_are_named(tmp_path: Path, file: str) -> None:
    folder = save_bert(tmp_path)
    (folder / file).write_bytes((folder / file).read_bytes()[:50])
    with pytest.raises(ArtifactCorrupt, match=str(folder)):
        scored(folder)


def test_an_error_without_words_is_named_by_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError

    folder = save_bert(tmp_path)
    monkeypatch.setattr(transformers.AutoModelForSequenceClassification, "from_pretrained", fail)
    with pytest.raises(ArtifactCorrupt, match="RuntimeError"):
        scored(folder)


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    folder = save_bert(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "made-up"}))
    with pytest.raises(ArtifactCorrupt, match="made-up"):
        scored(folder)


def test_rerankers_that_are_not_there_are_said(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown reranker 'simml': did you mean 'simlm'"):
        open_reranker("simml")
    with pytest.raises(InputError, match="there is no directory .*/nowhere with a checkpoint"):
        open_reranker(str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="is no checkpoint for .*: there is no config.json"):
        open_reranker(str(tmp_path))
    with pytest.raises(InputError, match="the device 'cuda:99' cannot be used"):
        CrossEncoder(RerankerSpec(name="made", checkpoint=save_bert(tmp_path)), "cuda:99")


def out_of_memory(*arguments: object, **options: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")


def test_too_little_memory_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = RerankerSpec(name="mine", checkpoint=save_bert(tmp_path / "bert"))
    encoder = CrossEncoder(spec)
    monkeypatch.setattr(encoder._network.module, "forward", out_of_memory)
    message = r"^cpu has too little memory for a batch of \d+ tokens for the reranker 'mine': end what else uses it, or name"
    with pytest.raises(IdxError, match=message):
        encoder.score(["a"], PASSAGES[:1])
    monkeypatch.setattr(torch.nn.Module, "to", out_of_memory)
    with pytest.raises(IdxError, match="^cpu has too little memory for the reranker 'mine': end what else uses it, or name"):
        CrossEncoder(spec)


def test_batches_as_wide_as_on_a_gpu_have_the_same_scores(tmp_path: Path) -> None:
    encoder = CrossEncoder(RerankerSpec(name="mine", checkpoint=save_bert(tmp_path / "bert")))
    queries, passages = map(list, zip(*PAIRS, strict=True))
    expected, width, widths = encoder.score(queries, passages), encoder._network._width, list[int]()

    def width_on_a_gpu(lengths: NDArray[np.int64]) -> int:
        encoder._network.device = torch.device("cuda")
        widths.append(width(lengths))
        encoder._network.device = torch.device("cpu")
        return widths[-1]

    encoder._network._width = width_on_a_gpu  # type: ignore[method-assign]
    for number in range(0, len(PAIRS), 2):
        some = slice(number, number + 2)
        np.testing.assert_allclose(encoder.score(queries[some], passages[some]), expected[some], rtol=0, atol=1e-5)
    assert all(width % 8 == 0 or width == encoder._network.max_tokens for width in widths)


def test_the_first_of_several_gpus_reranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(checkpoint, "resolve_device", lambda device, demand: pytest.fail(f"on {device}"))
    monkeypatch.setattr(checkpoint, "locate", lambda *arguments: tmp_path)
    for device, expected in (("cuda:1,0", "cuda:1"), ("all", "cuda")):
        with pytest.raises(pytest.fail.Exception, match=f"^on {expected}$"):
            open_reranker("simlm", device=device)


def test_simlm_cuts_at_the_length_of_its_scripts() -> None:
    assert (SIMLM_SPEC.max_tokens, SIMLM_SPEC.passage_text(PASSAGES[1])) == (192, "-: a river, 4 rivers: of the nile")
