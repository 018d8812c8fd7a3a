"""The contract of rerankers: scores are those of a reference, and depend on nothing but the pair; and which checkpoints are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

from tests.conftest import read_rows
from tests.indexer.encoders.changes import Change, changed, cut, removed, unchanged, written
from tests.indexer.encoders.fake_embeddings import fake_serving
from tests.indexer.encoders.tiny import save_bert_tokenizer
from tests.retrievers.made_rerankers import (
    PAIRS,
    FakeReranker,
    Pair,
    overlap,
    save_classifier,
    save_colbert,
    save_decoder,
    save_roberta,
    score,
)
from wikidx.base import errors
from wikidx.base.errors import ArtifactCorrupt, ArtifactMismatch, IdxError, InputError
from wikidx.base.machine.fit import Demand
from wikidx.corpora.passage import title_and_text
from wikidx.indexer.base import Scores
from wikidx.retrievers.base import Reranker
from wikidx.retrievers.cancellation import cancellation_scope
from wikidx.retrievers.errors import DeadlineExceeded
from wikidx.retrievers.rerankers import checkpoint, endpoint, maxsim
from wikidx.retrievers.rerankers.by_name import open_reranker
from wikidx.retrievers.rerankers.checkpoint import RerankerSpec
from wikidx.retrievers.rerankers.cross_encoder import CrossEncoder
from wikidx.retrievers.rerankers.decoder import Decoder
from wikidx.retrievers.rerankers.maxsim import MaxSim

Save = Callable[[Path], Path]
CARD = "Given a web search query, retrieve relevant passages that answer the query"


def by_sentence_transformers(folder: Path, **options: Any) -> Scores:  # noqa: ANN401 - of the library
    """Return a cross-encoder's scores, of each pair without padding; yes minus no of two labels."""
    import sentence_transformers  # seconds, which other tests need not wait for

    reference = sentence_transformers.CrossEncoder(str(folder), device="cpu", **options)
    texts = [(query, title_and_text(passage)) for query, passage in PAIRS]
    found = np.asarray(reference.predict(texts, batch_size=1, show_progress_bar=False))
    return found if found.ndim == 1 else found[:, 1] - found[:, 0]


def by_the_card(folder: Path, pairs: Sequence[Pair] = PAIRS, instruction: str = CARD, max_tokens: int | None = None) -> Scores:
    """Return the probability of yes as Qwen3-Reranker's model card computes it, for one pair at a time."""
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModelForCausalLM.from_pretrained(folder)
    prefix = tokenizer.encode(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that "
        'the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
        add_special_tokens=False,
    )
    suffix = tokenizer.encode("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", add_special_tokens=False)
    answers = tokenizer.convert_tokens_to_ids(["no", "yes"])
    length = (max_tokens or model.config.max_position_embeddings) - len(prefix) - len(suffix)
    scores = list[float]()
    for query, passage in pairs:
        text = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {title_and_text(passage)}"
        middle = tokenizer(text, truncation="longest_first", max_length=length)["input_ids"]
        with torch.inference_mode():
            logits = model(torch.tensor([[*prefix, *middle, *suffix]])).logits[0, -1, answers]
        scores.append(float(torch.nn.functional.log_softmax(logits.float(), dim=0)[1].exp()))
    return np.array(scores, dtype=np.float32)


def by_multi_vectors(folder: Path) -> Scores:
    """Return a ColBERT's scores by sentence-transformers, which reads checkpoints of PyLate."""
    import sentence_transformers

    reference = sentence_transformers.MultiVectorEncoder(str(folder), device="cpu")
    queries = reference.encode_query([query for query, _ in PAIRS])
    passages = reference.encode_document([title_and_text(passage) for _, passage in PAIRS])
    similarities: Scores = reference.similarity_pairwise(queries, passages).numpy()
    return similarities


def save_old(folder: Path) -> Path:
    """Write a checkpoint as they were saved that have no ``tokenizer.json``."""
    (save_classifier(folder) / "tokenizer.json").unlink()
    return folder


def save_stored(save: Save, file: str, stored: dict[str, Any], folder: Path) -> Path:
    """Write a checkpoint that stores settings."""
    changed(file, **stored)(save(folder))
    return folder


CROSS_ENCODERS: dict[str, Save] = {
    "BERT": save_classifier,
    "two labels": partial(save_classifier, num_labels=2),
    "no tokenizer.json": save_old,
    **{name: partial(save_classifier, architecture=name) for name in ("Electra", "DistilBert", "DebertaV2", "ModernBert", "Qwen3")},
    "no padding token": partial(save_classifier, architecture="Qwen3", pad_token_id=None),
    "RoBERTa": save_roberta,
}
DECODERS: dict[str, Save] = {
    "decoder": save_decoder,
    "decoder with learned positions": partial(save_decoder, architecture="GPT2", head="LMHeadModel"),
}
COLBERTS: dict[str, Save] = {
    "ColBERT": save_colbert,
    "ColBERT of ModernBERT": partial(save_colbert, architecture="ModernBert"),
    "ColBERT, attending": partial(save_colbert, attend_to_expansion_tokens=True),
    "ColBERT, no expansion": partial(save_colbert, do_query_expansion=False),
    "ColBERT, no skiplist": partial(save_colbert, skiplist_words=[]),
    "ColBERT, short": partial(save_colbert, query_length=8, document_length=20),
    "ColBERT, no prefix": partial(save_colbert, query_prefix="", document_prefix=""),
    "ColBERT, residual layers": partial(save_colbert, layers=((16, True), (16, True))),
}
SETTINGS = "config_sentence_transformers.json"
TANH = "torch.nn.modules.activation.Tanh"
PROMPT = {"prompts": {"facts": "Find facts"}, "default_prompt_name": "facts"}
STORED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [  # where, what, and what the library has to be told of it
    ("config.json", {"sentence_transformers": {"activation_fn": TANH}}, {}),
    ("config.json", {"sbert_ce_default_activation_function": TANH}, {}),
    (SETTINGS, {"activation_fn": TANH}, {"activation_fn": torch.nn.Tanh()}),
    ("sentence_bert_config.json", {"max_seq_length": 20}, {"max_length": 20}),
    ("tokenizer_config.json", {"model_max_length": 20}, {"max_length": 20}),
]
REFERENCES: dict[str, tuple[Save, Callable[[Path], Scores]]] = {
    **{name: (save, by_sentence_transformers) for name, save in CROSS_ENCODERS.items()},
    **{name: (save, by_the_card) for name, save in DECODERS.items()},
    **{name: (save, by_multi_vectors) for name, save in COLBERTS.items()},
    "stored instruction": (partial(save_stored, save_decoder, SETTINGS, PROMPT), partial(by_the_card, instruction="Find facts")),
    **{
        f"stored {stored}": (partial(save_stored, save_classifier, file, stored), partial(by_sentence_transformers, **said))
        for file, stored, said in STORED
    },
}


class Case(NamedTuple):
    """A reranker, and the reference's scores of ``PAIRS``."""

    reranker: Reranker
    expected: Scores


@contextmanager
def opened(kind: str, folder: Path) -> Iterator[Case]:
    if kind in REFERENCES:
        save, reference = REFERENCES[kind]
        save(folder)
        yield Case(open_reranker(str(folder)), reference(folder))
    else:
        with fake_serving(FakeReranker(form=kind)) as url:
            expected = np.array([overlap(query, title_and_text(passage)) for query, passage in PAIRS])
            yield Case(open_reranker(f"rerank:m@{url}"), expected)


KINDS = ("BERT", "two labels", "Qwen3", "decoder", "ColBERT", "stored instruction", "documents", "texts")  # with code of their own


@pytest.fixture(scope="module", params=[*KINDS, *(kind for kind in REFERENCES if kind not in KINDS)])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    with opened(request.param, tmp_path_factory.mktemp("made") / "checkpoint") as case:
        yield case


of_each_kind = pytest.mark.parametrize("case", KINDS, indirect=True)
of_each_network = pytest.mark.parametrize("case", dict.fromkeys([*KINDS, *CROSS_ENCODERS, *DECODERS, "ColBERT, attending"]), indirect=True)


def assert_close(found: Scores, expected: Scores) -> None:
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_scores_are_those_of_the_reference(case: Case) -> None:
    found = score(case.reranker, PAIRS)
    assert_close(found, case.expected)
    assert found.std() > 0.01  # or anything would be equal


@of_each_network
def test_a_score_depends_on_nothing_but_its_pair(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on the order, the neighbours or the size of batches."""
    for module, name, size in (
        (checkpoint, "_WINDOW", 7),
        (checkpoint, "_CPU_BATCH_TOKENS", 700),
        (maxsim, "_PAIRS", 2),
        (endpoint, "_BATCH", 3),
    ):
        monkeypatch.setattr(module, name, size)
    order = np.random.default_rng(3).permutation(len(PAIRS))
    assert_close(score(case.reranker, [PAIRS[number] for number in order]), case.expected[order])
    assert_close(np.concatenate([score(case.reranker, [pair]) for pair in PAIRS[:3]]), case.expected[:3])


@of_each_kind
def test_several_threads_score_at_once(case: Case) -> None:
    assert case.reranker.score([], []).shape == (0,)
    pairs, expected = PAIRS[::-7], case.expected[::-7]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: score(case.reranker, pairs), range(8)):
            assert_close(found, expected)


@of_each_kind
def test_a_cancelled_search_is_given_up(case: Case) -> None:
    with cancellation_scope(lambda: True), pytest.raises(DeadlineExceeded):
        score(case.reranker, PAIRS)


def test_a_decoder_takes_the_instruction_and_the_length_of_its_spec(tmp_path: Path) -> None:
    folder = save_stored(save_decoder, SETTINGS, PROMPT, tmp_path)
    spec = RerankerSpec(name="mine", checkpoint=folder, instruction="Find the same fact", max_tokens=450)
    assert_close(score(Decoder(spec), PAIRS[:4]), by_the_card(folder, PAIRS[:4], "Find the same fact", 450))


def test_simlms_reranker_is_read_as_its_authors_do(home: Path) -> None:
    """Query, then "title: text" with "-" for no title, 192 tokens; loaded from local files, without a network."""
    folder = save_classifier(home / "checkpoints" / "intfloat" / "simlm-msmarco-reranker" / "main", "Electra")
    tokenizer, kind = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModelForSequenceClassification
    texts = [f"{passage.title if passage.title else '-'}: {passage.text}" for _, passage in PAIRS]
    batch = tokenizer([query for query, _ in PAIRS], text_pair=texts, max_length=192, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        assert_close(score(open_reranker("simlm"), PAIRS), kind.from_pretrained(folder)(**batch).logits[:, 0].numpy())


NETWORKS: dict[str, tuple[Save, Callable[..., Reranker]]] = {
    "cross-encoder": (save_classifier, CrossEncoder),
    "decoder": (save_decoder, Decoder),
    "maxsim": (save_colbert, MaxSim),
}
Opens = Callable[..., Reranker]


@pytest.fixture(params=NETWORKS)
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Opens:
    """A function that opens a checkpoint on a device, with further settings of its spec."""
    save, kind = NETWORKS[request.param]
    folder = save(tmp_path / "checkpoint")
    return lambda device="cpu", **settings: kind(RerankerSpec(name="mine", checkpoint=folder, **settings), device)


def test_loading_prints_nothing(opens: Opens, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    score(opens(), PAIRS[:2])
    assert capfd.readouterr() == ("", "")


def test_a_device_that_is_not_there_is_named(opens: Opens) -> None:
    with pytest.raises(InputError, match="the device 'cuda:99' cannot be used"):
        opens("cuda:99")


def test_too_little_memory_is_one_line(opens: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*arguments: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    reranker = opens()
    monkeypatch.setattr(torch.nn.Linear, "forward", out_of_memory)
    message = r"^cpu has too little memory for a batch of [\d,]+ tokens for the reranker 'mine': end what else uses it, or name"
    with pytest.raises(IdxError, match=message):
        score(reranker, PAIRS[:1])
    monkeypatch.setattr(torch.nn.Module, "to", out_of_memory)
    with pytest.raises(IdxError, match="^cpu has too little memory for the reranker 'mine': end what else uses it, or name"):
        opens()


def test_the_memory_for_batches_of_the_longest_inputs_is_demanded_of_a_gpu(opens: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    demands = list[Demand]()

    def resolve(device: str, demand: Demand) -> str:
        demands.append(demand)
        return "cpu"

    monkeypatch.setattr(checkpoint, "may_use_gpus", lambda device: True)
    monkeypatch.setattr(checkpoint, "resolve_device", resolve)
    opens("auto", max_tokens=400)
    opens("auto", max_tokens=500)
    short, long = demands
    assert short.name == "the reranker 'mine'"
    bytes_per_pair = (long.n_bytes - short.n_bytes) / (100 * checkpoint.GPU_BATCH_TOKENS)
    assert bytes_per_pair in (1, 3)  # of the mask, and a decoder's attention in 16 bits


# Checkpoints that are refused


def with_another_layer(folder: Path) -> None:
    save_file({"linear.weight": torch.ones(8, 5)}, folder / "1_Dense" / "model.safetensors")


def with_berts_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    save_bert_tokenizer(folder)


class Refusal(NamedTuple):
    """A checkpoint written and spoiled, the refusal of it, and the kind of reranker that the user names, if any."""

    save: Save
    change: Change
    words: str
    error: type[IdxError] = ArtifactMismatch
    kind: str = ""


DENSE, MODULES = "1_Dense/model.safetensors", "modules.json"
POOLED = [{"type": "sentence_transformers.models.Transformer", "path": ""}, {"type": "sentence_transformers.models.Pooling", "path": "1"}]
NO_CLASSIFIER = "does not hold the weights of its config.json: missing classifier.bias, classifier.weight"
IMPORTED = "has the activation function os.system: only those of torch.nn"
POOLS = "lists Transformer, Pooling: a ColBERT checkpoint in PyLate.s format has a Transformer and"
NO_PREFIX = rf"has no token '\[X\] ', with which {SETTINGS} marks texts"
NO_KIND = "describes BertModel, which tells no kind of reranker: name it, as in cross-encoder:.* or maxsim:/"
NO_MODULES = "has no modules.json: it is no ColBERT checkpoint in PyLate's format"
NO_FIT = rf"{DENSE} holds linear\.weight .8, 5. .* instead of linear\.weight"
former_activation = changed("config.json", sbert_ce_default_activation_function="os.system")
REFUSED: dict[str, Refusal] = {
    "three labels": Refusal(partial(save_classifier, num_labels=3), unchanged, "tells 3 labels apart: a cross-encoder for"),
    "no classifier": Refusal(save_colbert, unchanged, NO_CLASSIFIER, kind="cross-encoder:"),
    "unknown architecture": Refusal(save_classifier, changed("config.json", model_type="made-up"), "made-up", ArtifactCorrupt),
    "foreign activation": Refusal(save_classifier, changed(SETTINGS, activation_fn="os.system"), IMPORTED),
    "foreign activation, as once stored": Refusal(save_classifier, former_activation, IMPORTED),
    "no yes": Refusal(save_decoder, with_berts_tokenizer, "has no token for yes or no"),
    "few positions": Refusal(save_decoder, changed("config.json", max_position_embeddings=99), "99 tokens: the prompt alone"),
    "unknown prefix": Refusal(partial(save_colbert, query_prefix="[X] "), unchanged, NO_PREFIX),
    "text as length": Refusal(save_colbert, changed(SETTINGS, query_length="32"), f"{SETTINGS}: query_length is '32': it sh"),
    "tiny length": Refusal(save_colbert, changed(SETTINGS, document_length=1), "document_length is 1: it should be greater"),
    "other modules": Refusal(save_colbert, written(MODULES, json.dumps(POOLED)), POOLS),
    "no modules": Refusal(save_colbert, removed(MODULES), NO_KIND, InputError),
    "no modules, as named": Refusal(save_colbert, removed(MODULES), NO_MODULES, kind="maxsim:"),
    "no architecture": Refusal(
        save_classifier, changed("config.json", architectures=None), "describes no architecture, which tells", InputError
    ),
    "layer of another size": Refusal(save_colbert, with_another_layer, NO_FIT),
    "cut layer": Refusal(save_colbert, cut(DENSE), f"{DENSE} cannot be read", ArtifactCorrupt),
}
REFUSED |= {
    f"modules {content}": Refusal(save_colbert, written(MODULES, content), "modules.json cannot be read", ArtifactCorrupt)
    for content in ("[1", "[1]", '[{"type": 3, "path": ""}]')
}
REFUSED |= {
    f"cut {file} of {kind}": Refusal(save, cut(file), f"{file} cannot be read", ArtifactCorrupt, f"{kind}:")
    for kind, (save, _) in NETWORKS.items()
    for file in ("config.json", "model.safetensors", "tokenizer.json")
}


def test_an_error_without_words_is_named_by_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(transformers.AutoModelForSequenceClassification, "from_pretrained", fail)
    with pytest.raises(ArtifactCorrupt, match="RuntimeError"):
        open_reranker(str(save_classifier(tmp_path)))


@pytest.mark.parametrize("what", REFUSED)
def test_a_checkpoint_that_does_not_fit_is_refused(what: str, tmp_path: Path) -> None:
    refusal = REFUSED[what]
    folder = refusal.save(tmp_path / "made")
    refusal.change(folder)
    with pytest.raises(refusal.error, match=refusal.words) as raised:
        open_reranker(f"{refusal.kind}{folder}")
    assert str(folder) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("name", "error", "words"), read_rows("contracts/no_rerankers.jsonl"))
def test_a_name_of_no_reranker_is_refused(name: str, error: str, words: str) -> None:
    with pytest.raises(getattr(errors, error), match=words):
        open_reranker(name)


def test_a_kind_that_is_named_need_not_be_recognised(tmp_path: Path) -> None:
    folder = save_classifier(tmp_path)
    expected = score(open_reranker(str(folder)), PAIRS[:1])
    changed("config.json", architectures=None)(folder)
    assert score(open_reranker(f"cross-encoder:{folder}"), PAIRS[:1]) == expected


@pytest.mark.parametrize(("device", "first"), [("cuda:1,0", "cuda:1"), ("all", "cuda")])
def test_the_first_of_several_gpus_reranks(device: str, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(checkpoint, "resolve_device", lambda device, demand: pytest.fail(f"on {device}"))
    monkeypatch.setattr(checkpoint, "locate", lambda *arguments: tmp_path)
    with pytest.raises(pytest.fail.Exception, match=f"^on {first}$"):
        open_reranker("simlm", device=device)
