"""Checkpoints that are not what they should be, and the forms that a sound one can have."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from corpora.errors import ArtifactDamaged, ArtifactMismatch, InputError
from indexer.encoders import contriever, dpr, gtr
from indexer.encoders.model import Model
from indexer.encoders.spec import EncoderSpec, Side, with_checkpoint
from indexer.encoders.tokenizing import Tokenizer
from indexer.encoders.transformer import TransformerEncoder

from . import tiny

QUERIES = ["the river", "nile of a"]


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return tiny.save_bert(tmp_path / "bert")


@pytest.fixture
def t5(tmp_path: Path) -> Path:
    return tiny.add_modules(tiny.save_t5(tmp_path / "t5"), "mean", dim=10)


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


def change_config(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def load(spec: EncoderSpec, folder: Path, side: Side = "query") -> Model:
    return Model(with_checkpoint(spec, folder), side)


def test_missing_weights_are_named(bert: Path) -> None:
    change_weights(bert, lambda weights: weights.pop("encoder.layer.1.attention.self.key.bias"))
    with pytest.raises(
        ArtifactMismatch, match=r"model\.safetensors .* missing encoder\.layer\.1\.attention\.self\.key\.bias, unknown none"
    ):
        load(contriever.SPEC, bert)


def test_unknown_weights_are_named(bert: Path) -> None:
    change_weights(bert, lambda weights: weights.update({f"adapter.{n}": torch.ones(1) for n in range(5)}))
    with pytest.raises(ArtifactMismatch, match=r"missing none, unknown adapter\.0, adapter\.1, adapter\.2 and 2 more"):
        load(contriever.SPEC, bert)


def test_weights_of_another_size_are_named(bert: Path) -> None:
    change_config(bert, intermediate_size=41)
    with pytest.raises(ArtifactMismatch, match=r"encoder\.layer\.0\.intermediate\.dense\.weight is \(40, 24\), not \(41, 24\)"):
        load(contriever.SPEC, bert)


def test_a_network_with_fewer_layers_than_weights_is_refused(bert: Path) -> None:
    change_config(bert, num_hidden_layers=1)
    with pytest.raises(ArtifactMismatch, match=r"unknown encoder\.layer\.1\.attention"):
        load(contriever.SPEC, bert)


def test_another_architecture_is_refused_before_its_weights_are_read(bert: Path, t5: Path) -> None:
    with pytest.raises(ArtifactMismatch, match="is of a network 't5', but 'contriever' is a bert or dpr"):
        load(contriever.SPEC, t5)
    with pytest.raises(ArtifactMismatch, match="is of a network 'bert', but 'gtr' is a t5"):
        Tokenizer(with_checkpoint(gtr.SPEC, tiny.add_modules(bert, "mean", dim=10)), "query")
    change_config(bert, hidden_act="relu")
    with pytest.raises(ArtifactMismatch, match="has hidden_act 'relu', but 'contriever' is computed with 'gelu'"):
        load(contriever.SPEC, bert)


def test_dprs_sides_cannot_be_taken_for_each_other(tmp_path: Path) -> None:
    tiny.save_dpr(tmp_path)
    (tmp_path / "question_encoder").rename(tmp_path / "other")
    (tmp_path / "ctx_encoder").rename(tmp_path / "question_encoder")
    with pytest.raises(ArtifactMismatch, match=r"missing embeddings\..*unknown ctx_encoder\.bert_model\."):
        load(dpr.SPEC, tmp_path)


def test_another_tokenizer_is_refused(bert: Path) -> None:
    vocabulary = (bert / "vocab.txt").read_text().splitlines()
    (bert / "tokenizer.json").unlink()
    (bert / "vocab.txt").write_text("\n".join([*vocabulary, "more"]))
    with pytest.raises(ArtifactMismatch, match=f"knows {len(vocabulary) + 1} tokens, its network {len(vocabulary)}"):
        TransformerEncoder(with_checkpoint(contriever.SPEC, bert))
    change_config(bert, vocab_size=len(vocabulary) + 500)
    with pytest.raises(ArtifactMismatch, match="they do not belong together"):
        Tokenizer(with_checkpoint(contriever.SPEC, bert), "query")
    change_config(bert, vocab_size=len(vocabulary))
    (bert / "vocab.txt").write_text("\n".join(["none" if token == "[SEP]" else token for token in vocabulary]))
    with pytest.raises(ArtifactDamaged, match=r"vocab\.txt cannot be read"):
        Tokenizer(with_checkpoint(contriever.SPEC, bert), "query")


def test_a_tokenizer_without_the_networks_special_tokens_is_refused(bert: Path, t5: Path) -> None:
    shutil.copy(t5 / "tokenizer.json", bert)
    change_config(bert, vocab_size=json.loads((t5 / "config.json").read_text())["vocab_size"])
    with pytest.raises(ArtifactMismatch, match=r"has no token \[CLS\]"):
        Tokenizer(with_checkpoint(contriever.SPEC, bert), "query")


def test_a_network_that_takes_fewer_tokens_is_refused(bert: Path) -> None:
    change_config(bert, max_position_embeddings=100)
    with pytest.raises(ArtifactMismatch, match="takes 100 tokens, but 'contriever' needs 512"):
        Tokenizer(with_checkpoint(contriever.SPEC, bert), "query")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b""),
        ("model.safetensors", b"\xff" * 100),
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b'{"model_type": "bert"}'),
        ("tokenizer.json", b"{"),
        ("tokenizer.json", b'{"version": "1.0"}'),
    ],
)
def test_damaged_files_are_named(name: str, content: bytes, bert: Path) -> None:
    (bert / name).write_bytes(content)
    with pytest.raises(ArtifactDamaged, match=f"{name} (cannot be read|does not say)"):
        TransformerEncoder(with_checkpoint(contriever.SPEC, bert))


def test_truncated_weights_are_named(bert: Path) -> None:
    path = bert / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ArtifactDamaged, match=r"model\.safetensors cannot be read"):
        load(contriever.SPEC, bert)


class _Payload:
    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._proof),)


@pytest.mark.parametrize("in_archive", [True, False])
def test_pickled_weights_run_no_code(in_archive: bool, bert: Path, tmp_path: Path) -> None:
    proof = tmp_path / "it ran"
    (bert / "model.safetensors").unlink()
    torch.save({"embeddings.LayerNorm.bias": _Payload(proof)}, bert / "pytorch_model.bin", _use_new_zipfile_serialization=in_archive)
    with pytest.raises(ArtifactDamaged, match=r"pytorch_model\.bin cannot be read"):
        load(contriever.SPEC, bert)
    assert not proof.exists()
    with (bert / "pytorch_model.bin").open("wb") as file:
        pickle.dump(_Payload(proof), file, protocol=2)
    with pytest.raises(ArtifactDamaged, match=r"pytorch_model\.bin cannot be read"):
        load(contriever.SPEC, bert)
    assert not proof.exists()


def _as_archive(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    torch.save(weights, folder / "pytorch_model.bin")


def _as_before_2020(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    weights["embeddings.position_ids"] = torch.arange(512).expand(1, -1).clone()
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def _with_head(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    save_file({f"bert.{name}": tensor for name, tensor in weights.items()}, folder / "model.safetensors")


def _in_shards(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    names = sorted(weights)
    files = {f"model-{number}-of-3.safetensors": names[number::3] for number in range(3)}
    for file, part in files.items():
        save_file({name: weights[name] for name in part}, folder / file)
    index = {"metadata": {}, "weight_map": {name: file for file, part in files.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("write", [_as_archive, _as_before_2020, _with_head, _in_shards])
def test_weights_are_read_in_all_their_forms(write: Callable[[Path, dict[str, torch.Tensor]], None], bert: Path) -> None:
    expected = TransformerEncoder(with_checkpoint(contriever.SPEC, bert)).encode_queries(QUERIES)
    weights = load_file(bert / "model.safetensors")
    (bert / "model.safetensors").unlink()
    write(bert, weights)
    np.testing.assert_array_equal(TransformerEncoder(with_checkpoint(contriever.SPEC, bert)).encode_queries(QUERIES), expected)


def test_t5s_second_copy_of_its_token_vectors_is_allowed(t5: Path) -> None:
    change_weights(t5, lambda weights: weights.update({"encoder.embed_tokens.weight": weights["shared.weight"].clone()}))
    assert load(gtr.SPEC, t5).dim == 10


def test_a_projection_that_is_more_than_a_matrix_is_refused(t5: Path) -> None:
    dense = t5 / "2_Dense"
    config, weights = json.loads((dense / "config.json").read_text()), load_file(dense / "model.safetensors")
    (dense / "config.json").write_text(json.dumps(config | {"activation_function": "torch.nn.modules.activation.Tanh"}))
    with pytest.raises(ArtifactMismatch, match=r"activation function torch\.nn\.modules\.activation\.Tanh, but 'gtr' has none"):
        load(gtr.SPEC, t5)
    (dense / "config.json").write_text(json.dumps(config))
    save_file(weights | {"linear.bias": torch.zeros(10)}, dense / "model.safetensors")
    with pytest.raises(ArtifactMismatch, match=r"holds linear\.bias, linear\.weight instead of linear\.weight"):
        load(gtr.SPEC, t5)
    (dense / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"there is no 2_Dense/model\.safetensors \(or 2_Dense/pytorch_model\.bin\) in it"):
        load(gtr.SPEC, t5)


def test_loading_says_nothing(bert: Path, capfd: pytest.CaptureFixture[str]) -> None:
    transformers.utils.logging.set_verbosity_warning()
    change_weights(bert, lambda weights: weights.pop("pooler.dense.bias"))  # which transformers itself would warn of
    capfd.readouterr()
    TransformerEncoder(with_checkpoint(contriever.SPEC, bert)).encode_queries(["a " * 1000])
    assert capfd.readouterr() == ("", "")
