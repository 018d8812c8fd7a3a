"""Checkpoints that are refused, as a table, and the forms of valid ones."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.indexer.encoders import tiny
from tests.indexer.encoders.changes import Change, all_of, changed, edited, removed, weights, written
from tests.indexer.encoders.folders import with_checkpoint
from wikidx.base.errors import ArtifactCorrupt, ArtifactError, ArtifactMismatch, IdxError, InputError
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.encoders.transformer import TransformerEncoder

QUERIES = ["the river", "nile of a", "a " * 1000]


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return tiny.save_bert(tmp_path / "bert")


def load(spec: EncoderSpec, folder: Path) -> TransformerEncoder:
    encoder = TransformerEncoder(with_checkpoint(spec, folder))
    encoder.encode_passages([])  # loads the passages' side, too
    return encoder


# Changes of a checkpoint


tokenizer = partial(edited, "tokenizer.json")


def vocabulary(change: Callable[[list[str]], list[str]]) -> Change:
    """Leave the tokenizer as the bare list of its tokens, changed."""

    def apply(folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.txt").write_text("\n".join(change(tiny.VOCABULARY)))

    return apply


def shards(listed: object) -> Change:
    """Leave a list of weight files without the weights."""
    return all_of(removed("model.safetensors"), written("model.safetensors.index.json", json.dumps(listed)))


def as_bin(content: object) -> Change:
    """Replace the weights by a pickle of torch's, or by bytes."""

    def apply(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        path = folder / "pytorch_model.bin"
        path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)

    return apply


def projection_of_dpr(folder: Path) -> None:
    added = {"question_encoder.encode_proj.weight": torch.ones(7, 24), "question_encoder.encode_proj.bias": torch.ones(7)}
    all_of(changed("config.json", projection_dim=7), weights(lambda stored: stored.update(added)))(folder / "question_encoder")


def swapped_sides(folder: Path) -> None:
    (folder / "question_encoder").rename(folder / "other")
    (folder / "ctx_encoder").rename(folder / "question_encoder")


def save_gtr(folder: Path) -> Path:
    return tiny.add_modules(tiny.save_t5(folder), "mean", dim=10)


DENSE = "2_Dense/model.safetensors"


def projection(*shape: int, dtype: torch.dtype = torch.float32) -> Change:
    return weights(lambda stored: stored.update({"linear.weight": torch.zeros(shape, dtype=dtype)}), DENSE)


def with_weights_of_bert(folder: Path) -> None:
    (tiny.save_bert(folder / "bert") / "model.safetensors").replace(folder / "model.safetensors")


class Refusal(NamedTuple):
    """A change, the refusal of what it makes, and the encoder and its checkpoint."""

    change: Change
    words: str
    error: type[IdxError] = ArtifactMismatch
    spec: EncoderSpec = ENCODERS["contriever"]
    save: Callable[[Path], Path] = tiny.save_bert


N_TOKENS, KEY = len(tiny.VOCABULARY), "encoder.layer.1.attention.self.key.bias"
ADAPTERS = {f"encoder.adapter.{n}": torch.ones(1) for n in range(5)}
CODE = {"model_type": "made", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
OWN_CODE = all_of(changed("config.json", **CODE), written("code.py", "raise SystemExit('it ran')"))
QUANTISED = changed("config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
UNSEPARATED = vocabulary(lambda tokens: ["none" if token == "[SEP]" else token for token in tokens])
BEYOND = tokenizer(lambda stored: stored["model"]["vocab"].update(river=5000))  # as many tokens as before
save_roberta = partial(tiny.save_other, architecture="xlm-roberta")  # whose first positions are never used
of_config = partial(changed, "config.json")
GTR: dict[str, Any] = {"spec": ENCODERS["gtr"], "save": save_gtr}
DPR: dict[str, Any] = {"spec": ENCODERS["dpr"], "save": tiny.save_dpr}
REFUSED: dict[str, Refusal] = {
    "missing weights": Refusal(weights(lambda stored: stored.pop(KEY)), f"model.safetensors .* missing {KEY}, unknown none"),
    "unknown weights": Refusal(weights(lambda stored: stored.update(ADAPTERS)), r"unknown encoder\.adapter\.0, .*\.1, .*\.2 and 2 more"),
    "resized weights": Refusal(of_config(intermediate_size=41), r"layer\.0\.intermediate\.dense\.bias is \(40,\), not \(41,\)"),
    "fewer layers than weights": Refusal(of_config(num_hidden_layers=1), r"unknown encoder\.layer\.1\.attention"),
    "weights of BERT": Refusal(with_weights_of_bert, "does not hold the weights of its config.json: missing encoder", **GTR),
    "own code": Refusal(OWN_CODE, r"config\.json cannot be read \(.*contains custom code", ArtifactCorrupt),
    "quantised weights": Refusal(QUANTISED, "describes quantised weights: 'contriever' needs plain ones"),
    "projection of DPR": Refusal(projection_of_dpr, "describes a projection after the hidden states", **DPR),
    "swapped sides of DPR": Refusal(swapped_sides, r"missing question_encoder\.bert_model\.embeddings\.", **DPR),
    "larger tokenizer": Refusal(vocabulary(lambda tokens: [*tokens, "more"]), f"knows {N_TOKENS + 1} tokens, its network {N_TOKENS}"),
    "larger network": Refusal(of_config(vocab_size=N_TOKENS + 2000), "they do not belong together"),
    "no separator": Refusal(UNSEPARATED, r"vocab\.txt cannot be read", ArtifactCorrupt),
    "no special tokens": Refusal(tokenizer(lambda stored: stored.update(post_processor=None)), "gives texts no special tokens"),
    "token beyond the network's": Refusal(BEYOND, "knows 5001 tokens, its network"),
    "positions behind padding": Refusal(of_config(max_position_embeddings=513), "511 tokens, but 'contriever' needs", save=save_roberta),
    "fewer positions": Refusal(of_config(max_position_embeddings=100), "takes 100 tokens, but 'contriever' needs 512"),
    "one token type": Refusal(of_config(type_vocab_size=1), "has 1 token type, but 'simlm' needs 2", spec=ENCODERS["simlm"]),
    "missing shard": Refusal(shards({"weight_map": {"a": "x.safetensors"}}), "'contriever': there is no x.safetensors in it", InputError),
    "projection of whole numbers": Refusal(projection(10, 24, dtype=torch.int8), r"safetensors holds linear\.weight .*int8", **GTR),
    "no projection": Refusal(removed(DENSE), rf"there is no {DENSE} \(or 2_Dense/pytorch_model\.bin\) in it", InputError, **GTR),
}
REFUSED |= {
    f"projection of {shape}": Refusal(projection(*shape), r"holds linear\.weight \(10.* give vectors of 24 components", **GTR)
    for shape in ((10, 25), (10,), (10, 24, 1))
}
REFUSED |= {
    f"{file} {content[:12]!r}": Refusal(written(file, content), f"{file} cannot be read", ArtifactCorrupt, **options)
    for file, content, options in (
        ("model.safetensors", b"", {}),
        ("model.safetensors", b"\xff" * 100, {}),
        ("config.json", b"[]", {}),
        ("tokenizer.json", b'{"version": "1.0"}', {}),
        ("2_Dense/config.json", b"[" * 100_000, GTR),
    )
}
ITSELF, OUTSIDE = {"a": "model.safetensors.index.json"}, {"a": "../bert/model.safetensors"}
NO_SHARDS: list[object] = [*({"weight_map": listed} for listed in (["model.safetensors"], {"a": 3}, ITSELF, OUTSIDE, {})), {}, []]
REFUSED |= {
    f"shards {listed}": Refusal(shards(listed), r"/model\.safetensors\.index\.json cannot be read \(it ", ArtifactCorrupt)
    for listed in NO_SHARDS
}
NO_SIZE = r"/(config\.json|model\.safetensors) (cannot be read|does not hold)"
REFUSED |= {
    f"{name} {size}": Refusal(of_config(**{name: size}), NO_SIZE, ArtifactError)
    for name, size in (
        ("num_attention_heads", 5),
        ("num_attention_heads", 0),
        ("hidden_size", 10**30),
        ("intermediate_size", [3]),
        ("num_hidden_layers", -1),
    )
}
PICKLES = {
    "nothing": b"",
    "text": b"hello",
    "zeros": bytes(1000),
    "a cut archive": b"PK\x03\x04" + bytes(100),
    "a list": [torch.ones(2)],
    "a tensor": torch.ones(2),
}
NO_TENSORS = r"/pytorch_model\.bin cannot be read \(it .*get the checkpoint of 'contriever' again$"
REFUSED |= {f"pickle of {what}": Refusal(as_bin(content), NO_TENSORS, ArtifactCorrupt) for what, content in PICKLES.items()}


@pytest.mark.parametrize("what", REFUSED)
def test_a_checkpoint_that_does_not_fit_is_refused(what: str, tmp_path: Path) -> None:
    refusal = REFUSED[what]
    folder = refusal.save(tmp_path / "made")
    refusal.change(folder)
    with pytest.raises(refusal.error, match=refusal.words) as raised:
        load(refusal.spec, folder)
    assert str(folder) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "weights_only" not in str(raised.value)  # torch's advice to run code from the file


class _Payload:
    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._proof),)


@pytest.mark.parametrize("form", ["archive", "before 2020", "bare"])
def test_pickled_weights_run_no_code(form: str, bert: Path, tmp_path: Path) -> None:
    (bert / "model.safetensors").unlink()
    payload, path = {"embeddings.LayerNorm.bias": _Payload(tmp_path / "it ran")}, bert / "pytorch_model.bin"
    if form == "bare":
        path.write_bytes(pickle.dumps(payload, protocol=2))
    else:
        torch.save(payload, path, _use_new_zipfile_serialization=form == "archive")
    with pytest.raises(ArtifactCorrupt, match=r"pytorch_model\.bin cannot be read"):
        load(ENCODERS["contriever"], bert)
    assert not (tmp_path / "it ran").exists()


def as_torch_saves(folder: Path, **options: bool) -> None:
    stored = load_file(folder / "model.safetensors") | {"embeddings.position_ids": torch.arange(512).expand(1, -1).clone()}
    (folder / "model.safetensors").unlink()
    torch.save(stored, folder / "pytorch_model.bin", **options)


def with_head(stored: dict[str, torch.Tensor]) -> None:
    for name in [*stored]:
        stored[f"bert.{name}"] = stored.pop(name)
    stored |= {"cls.predictions.bias": torch.ones(3), "cls.predictions.transform.dense.weight": torch.ones(24, 24)}


def in_shards(folder: Path) -> None:
    """Cut a checkpoint's weights into three files with an index."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    files = {f"model-{number}-of-3.safetensors": names[number::3] for number in range(3)}
    for file, part in files.items():
        save_file({name: weights[name] for name in part}, folder / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, part in files.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


FORMS: dict[str, Change] = {
    "archive": as_torch_saves,
    "before 2020": partial(as_torch_saves, _use_new_zipfile_serialization=False),
    "with a head": weights(with_head),
    "shards": in_shards,
    "without what is not used": weights(lambda stored: stored.pop("pooler.dense.bias")),  # which transformers itself would warn of
}


@pytest.mark.parametrize("change", FORMS.values(), ids=list(FORMS))
def test_weights_are_read_in_all_forms_without_a_word(change: Change, bert: Path, capfd: pytest.CaptureFixture[str]) -> None:
    expected = load(ENCODERS["contriever"], bert).encode_queries(QUERIES)
    change(bert)
    transformers.utils.logging.set_verbosity_warning()
    capfd.readouterr()
    np.testing.assert_array_equal(load(ENCODERS["contriever"], bert).encode_queries(QUERIES), expected)
    assert capfd.readouterr() == ("", "")


def test_t5s_second_copy_of_its_token_vectors_is_allowed(tmp_path: Path) -> None:
    folder = save_gtr(tmp_path)
    weights(lambda stored: stored.update({"encoder.embed_tokens.weight": stored["shared.weight"].clone()}))(folder)
    assert load(ENCODERS["gtr"], folder).dim == 10


def test_a_device_without_room_for_texts_is_named(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    monkeypatch.setattr(Model, "forward", fail)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    encoder = TransformerEncoder(with_checkpoint(ENCODERS["contriever"], bert), "auto")
    message = "^cpu has too little memory for 2 texts for the encoder 'contriever': end what else uses it, or name another one"
    with pytest.raises(IdxError, match=message):
        encoder.encode_queries(["a", "b"])
