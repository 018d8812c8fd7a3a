from __future__ import annotations

import json
import shutil
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


def opened(nli: Checkpoint) -> Checkpoint:
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


@pytest.mark.parametrize("batch_tokens", [1, 64, 4096])
def test_a_model_that_writes_says_yes_by_writing_1(t5: Path, batch_tokens: int) -> None:
    found = Checkpoint(str(t5), EngineOptions(batch_tokens=batch_tokens)).entails(PAIRS)
    wanted = written_by(t5, PAIRS)
    assert set(wanted) >= {"0", "1", "1 0"}  # or the comparison would see nothing
    assert found == [text == "1" for text in wanted]


def test_a_model_is_opened_by_the_first_pair(bert: Path) -> None:
    nli = Checkpoint(str(bert), EngineOptions(device="cpu"))
    assert nli.entails([]) == []
    assert nli.metadata() == {"model": str(bert), "opened": False}
    nli.entails(PAIRS[:1])
    assert nli.metadata()["kind"] == "the likeliest label is 'Entailment'"


def test_a_premise_of_any_length_is_read_whole_by_a_model_that_writes(t5: Path) -> None:
    long = Pair(" ".join(["dog"] * 1500 + ["cat"]), "barks")
    assert Checkpoint(str(t5)).entails([long]) == [written_by(t5, [long]) == ["1"]]


@pytest.mark.parametrize("batch_tokens", [1, 64, 4096])
def test_a_classifier_says_yes_where_entailment_is_its_likeliest_label(bert: Path, batch_tokens: int) -> None:
    found = Checkpoint(str(bert), EngineOptions(batch_tokens=batch_tokens)).entails(PAIRS)
    wanted = labels_by(bert, PAIRS)
    assert len(set(wanted)) > 1
    assert found == [label == "Entailment" for label in wanted]


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


def test_the_model_is_named(t5: Path, bert: Path) -> None:
    writes, classifies = (opened(Checkpoint(str(folder))).metadata() for folder in (t5, bert))
    assert (writes["model"], writes["revision"]) == (str(t5), folder_digest(t5))
    assert (writes["dtype"], writes["device"], writes["max_tokens"]) == ("float32", "cpu", None)
    assert classifies["kind"] == "the likeliest label is 'Entailment'"
    assert classifies["revision"] not in (None, writes["revision"])


def test_a_label_is_found_by_its_name() -> None:
    assert entailment_label({0: "contradiction", 1: "ENTAILMENT", 2: "neutral"}, "m") == 1
    assert entailment_label({0: "entailment", 1: "not_entailment"}, "m") == 0
    assert entailment_label({0: "refutes", 1: "entails"}, "m") == 1


@pytest.mark.parametrize(
    "labels", [["LABEL_0", "LABEL_1"], ["entailment", "Entailed", "neutral"], ["not_entailment", "neutral"], ["entailment"]]
)
def test_a_classifier_without_one_label_of_entailment_is_refused(labels: list[str], tmp_path: Path) -> None:
    folder = save_tiny_classifier(tmp_path / "bert", labels)
    with pytest.raises(ArtifactMismatch, match=f"has the labels .*{labels[0]}"):
        Checkpoint(str(folder))


def test_a_checkpoint_whose_head_would_be_random_is_refused(bert: Path, tmp_path: Path) -> None:
    transformers.AutoModel.from_pretrained(bert).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["BertForSequenceClassification"]}), encoding="utf-8")
    with pytest.raises(ArtifactMismatch, match="does not hold the weights of its config.json: missing classifier"):
        opened(Checkpoint(str(tmp_path)))


def test_a_checkpoint_of_another_kind_is_refused(bert: Path, tmp_path: Path) -> None:
    transformers.AutoModel.from_pretrained(bert).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="made for BertModel"):
        Checkpoint(str(tmp_path))


def test_missing_models_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no NLI model '.*absent': use 'true', 'small', hf:NAME"):
        Checkpoint(str(tmp_path / "absent"))
    with pytest.raises(InputError, match="is no NLI checkpoint that transformers can load"):
        Checkpoint(str(tmp_path))


def test_unreadable_weights_and_missing_devices_are_reported(bert: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bert, tmp_path / "damaged"))
    (folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match="damaged' is no NLI checkpoint that transformers can load"):
        opened(Checkpoint(str(folder)))
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
