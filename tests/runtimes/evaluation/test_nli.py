from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.runtimes.evaluation.tiny_nli import pairs, save_tiny_classifier, save_tiny_t5
from wikidx.base.errors import ArtifactMismatch, InputError
from wikidx.runtimes.evaluation.by_models.citations import RECALL, AlceCitations
from wikidx.runtimes.evaluation.by_models.nli import Checkpoint, Pair, entailment_label
from wikidx.runtimes.evaluation.by_models.sentence_splitting import SIMPLE
from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.execution.identity import folder_digest
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.questions import Question

THREE = ["CONTRADICTION", "Entailment", "neutral"]
PAIRS = pairs(40)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """So small a model is slowed down by torch's threads, the more so on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_t5(tmp_path_factory.mktemp("nli") / "t5")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_classifier(tmp_path_factory.mktemp("nli") / "bert", THREE)


def opened(folder: Path) -> Checkpoint:
    """Return the model of a folder, opened by a pair."""
    nli = Checkpoint(str(folder))
    nli.entails(PAIRS[:1])
    return nli


def written_by(folder: Path, source: Sequence[Pair]) -> list[str]:
    """Output of plain transformers for each pair by itself, without padding, as ALCE's evaluator asks."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    texts = []
    for pair in source:
        ids = tokenizer(f"premise: {pair.premise} hypothesis: {pair.hypothesis}", return_tensors="pt").input_ids
        with torch.inference_mode():
            texts.append(tokenizer.decode(model.generate(ids, max_new_tokens=10)[0], skip_special_tokens=True))
    return texts


def labels_by(folder: Path, source: Sequence[Pair], **cut: Any) -> list[str]:  # noqa: ANN401 - the tokenizer's options
    """The likeliest label of each pair by itself, by transformers alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.inference_mode():
        likeliest = [int(model(**tokenizer(*pair, return_tensors="pt", **cut)).logits.argmax()) for pair in source]
    return [model.config.id2label[label] for label in likeliest]


@pytest.mark.parametrize("batch_tokens", [1, 64])
def test_verdicts_are_those_of_each_pair_alone(t5: Path, bert: Path, batch_tokens: int) -> None:
    """A model that writes says yes by writing 1, a classifier where entailment is its likeliest label."""
    options = EngineOptions(batch_tokens=batch_tokens)
    texts, labels = written_by(t5, PAIRS), labels_by(bert, PAIRS)
    assert set(texts) >= {"0", "1", "1 0"}  # or the comparison would see nothing
    assert len(set(labels)) > 1
    assert Checkpoint(str(t5), options).entails(PAIRS) == [text == "1" for text in texts]
    assert Checkpoint(str(bert), options).entails(PAIRS) == [label == "Entailment" for label in labels]


def test_a_premise_of_any_length_is_read_whole_by_a_model_that_writes(t5: Path) -> None:
    long = Pair(" ".join(["dog"] * 1500 + ["cat"]), "barks")
    assert Checkpoint(str(t5)).entails([long]) == [written_by(t5, [long]) == ["1"]]


def test_pairs_too_long_for_a_classifier_are_cut_and_counted(tmp_path: Path) -> None:
    """24 positions of a RoBERTa whose padding token is number 0: its first position is never used, 23 tokens remain."""
    folder = save_tiny_classifier(tmp_path / "roberta", THREE, roberta=True, positions=24)
    nli, long = Checkpoint(str(folder)), [*pairs(30, longest=40, seed=3), Pair("the cat", " ".join(["dog"] * 40))]
    found = nli.entails(long)
    wanted = labels_by(folder, long, truncation=True, max_length=23)
    assert len(set(wanted)) > 1
    assert found == [label == "Entailment" for label in wanted]
    n_words = [len(pair.premise.split()) + len(pair.hypothesis.split()) for pair in long]
    assert (nli.metadata()["max_tokens"], nli.metadata()["pairs_truncated"]) == (23, sum(n + 4 > 23 for n in n_words))
    assert nli.metadata()["pairs_truncated"] > 5


def test_the_model_is_named_once_it_is_opened_by_the_first_pair(t5: Path, bert: Path) -> None:
    nli = Checkpoint(str(bert), EngineOptions(device="cpu"))
    assert nli.entails([]) == []
    assert nli.metadata() == {"model": str(bert), "opened": False}
    writes, classifies = (opened(folder).metadata() for folder in (t5, bert))
    assert (writes["model"], writes["revision"]) == (str(t5), folder_digest(t5))
    assert (writes["dtype"], writes["device"], writes["max_tokens"]) == ("float32", "cpu", None)
    assert classifies["kind"] == "the likeliest label is 'Entailment'"
    assert classifies["revision"] not in (None, writes["revision"])


@pytest.mark.parametrize(
    ("labels", "number"),
    [(["contradiction", "ENTAILMENT", "neutral"], 1), (["entailment", "not_entailment"], 0), (["refutes", "entails"], 1)],
)
def test_a_label_is_found_by_its_name(labels: list[str], number: int) -> None:
    assert entailment_label(dict(enumerate(labels)), "m") == number


@pytest.mark.parametrize("labels", [["LABEL_0", "LABEL_1"], ["entailment", "Entailed"], ["not_entailment", "neutral"], ["entailment"]])
def test_a_classifier_without_one_label_of_entailment_is_refused(labels: list[str]) -> None:
    with pytest.raises(ArtifactMismatch, match=f"has the labels .*{labels[0]}"):
        entailment_label(dict(enumerate(labels)), "m")


def test_checkpoints_that_are_none_of_nli_are_refused(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no NLI checkpoint that transformers can load"):
        Checkpoint(str(tmp_path))
    with pytest.raises(InputError, match=r"no NLI model '.*absent': use 'true', 'small', hf:NAME"):
        Checkpoint(str(tmp_path / "absent"))
    transformers.AutoModel.from_pretrained(bert).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="made for BertModel"):
        Checkpoint(str(tmp_path))
    transformers.AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["BertForSequenceClassification"]}), encoding="utf-8")
    with pytest.raises(ArtifactMismatch, match="does not hold the weights of its config.json: missing classifier"):  # or they are random
        opened(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match="is no NLI checkpoint that transformers can load"):
        opened(tmp_path)
    with pytest.raises(InputError, match="cuda:77"):
        Checkpoint(str(bert), EngineOptions(device="cuda:77"))


def test_an_unreachable_repository_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="'hf:no-one/nothing@main' is no NLI checkpoint that transformers can load"):
        Checkpoint("hf:no-one/nothing@main")


def test_citations_by_a_real_checkpoint_name_it(t5: Path) -> None:
    """The tiny model entails whatever speaks of a cat."""
    metric = AlceCitations(Checkpoint(str(t5)), SIMPLE)
    row = PredictionRow("7", "The dog [1]. The dog [2].", ({"title": "the", "text": "cat sleeps"}, {"title": "the", "text": "dog barks"}))
    assert metric.measure([row], [Question("7", "?")]).values[RECALL][0] == 0.5
    assert metric.metadata()["nli"]["revision"] == folder_digest(t5)
