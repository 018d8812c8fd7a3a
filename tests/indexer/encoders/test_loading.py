"""Invalid checkpoints, and the forms of valid ones."""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.indexer.encoders import tiny
from tests.indexer.encoders.folders import with_checkpoint
from wikidx.base.errors import ArtifactCorrupt, ArtifactError, ArtifactMismatch, IdxError, InputError
from wikidx.indexer.encoders import contriever, dpr, gtr, simlm
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec, Side
from wikidx.indexer.encoders.tokenizing import Tokenizer
from wikidx.indexer.encoders.transformer import TransformerEncoder

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
    change_weights(bert, lambda weights: weights.update({f"encoder.adapter.{n}": torch.ones(1) for n in range(5)}))
    with pytest.raises(ArtifactMismatch, match=r"unknown encoder\.adapter\.0, encoder\.adapter\.1, encoder\.adapter\.2 and 2 more"):
        load(contriever.SPEC, bert)


def test_weights_of_another_size_are_named(bert: Path) -> None:
    change_config(bert, intermediate_size=41)
    with pytest.raises(ArtifactMismatch, match=r"encoder\.layer\.0\.intermediate\.dense\.bias is \(40,\), not \(41,\)"):
        load(contriever.SPEC, bert)


def test_a_network_with_fewer_layers_than_weights_is_refused(bert: Path) -> None:
    change_config(bert, num_hidden_layers=1)
    with pytest.raises(ArtifactMismatch, match=r"unknown encoder\.layer\.1\.attention"):
        load(contriever.SPEC, bert)


def test_weights_of_another_architecture_are_refused(bert: Path, t5: Path) -> None:
    (t5 / "model.safetensors").write_bytes((bert / "model.safetensors").read_bytes())
    with pytest.raises(ArtifactMismatch, match=r"t5/model.safetensors does not hold the weights of its config.json: missing encoder"):
        load(gtr.SPEC, t5)


def test_code_and_quantised_weights_are_refused(bert: Path) -> None:
    change_config(bert, model_type="made", auto_map={"AutoConfig": "code.Config", "AutoModel": "code.Model"})
    (bert / "code.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(ArtifactCorrupt, match=r"config\.json cannot be read \(.*contains custom code"):
        load(contriever.SPEC, bert)
    change_config(bert, model_type="bert", auto_map={}, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    with pytest.raises(ArtifactMismatch, match="describes quantised weights: 'contriever' needs plain ones"):
        load(contriever.SPEC, bert)


def test_a_projection_of_dprs_own_is_refused(tmp_path: Path) -> None:
    folder = tiny.save_dpr(tmp_path)
    change_config(folder / "question_encoder", projection_dim=7)
    weights = {"question_encoder.encode_proj.weight": torch.ones(7, 24), "question_encoder.encode_proj.bias": torch.ones(7)}
    change_weights(folder / "question_encoder", lambda stored: stored.update(weights))
    with pytest.raises(ArtifactMismatch, match="describes a projection after the hidden states"):
        load(dpr.SPEC, folder)


def test_dprs_sides_cannot_be_taken_for_each_other(tmp_path: Path) -> None:
    tiny.save_dpr(tmp_path)
    (tmp_path / "question_encoder").rename(tmp_path / "other")
    (tmp_path / "ctx_encoder").rename(tmp_path / "question_encoder")
    with pytest.raises(ArtifactMismatch, match=r"missing question_encoder\.bert_model\.embeddings\."):
        load(dpr.SPEC, tmp_path)


def test_another_tokenizer_is_refused(bert: Path) -> None:
    vocabulary = (bert / "vocab.txt").read_text().splitlines()
    (bert / "tokenizer.json").unlink()
    (bert / "vocab.txt").write_text("\n".join([*vocabulary, "more"]))
    with pytest.raises(ArtifactMismatch, match=f"knows {len(vocabulary) + 1} tokens, its network {len(vocabulary)}"):
        TransformerEncoder(with_checkpoint(contriever.SPEC, bert))
    change_config(bert, vocab_size=len(vocabulary) + 2000)
    with pytest.raises(ArtifactMismatch, match="they do not belong together"):
        Tokenizer(with_checkpoint(contriever.SPEC, bert), "query")
    change_config(bert, vocab_size=len(vocabulary))
    (bert / "vocab.txt").write_text("\n".join(["none" if token == "[SEP]" else token for token in vocabulary]))
    with pytest.raises(ArtifactCorrupt, match=r"vocab\.txt cannot be read"):
        Tokenizer(with_checkpoint(contriever.SPEC, bert), "query")


def test_a_tokenizer_that_gives_no_special_tokens_is_refused(bert: Path) -> None:
    tokenizer = json.loads((bert / "tokenizer.json").read_text())
    (bert / "tokenizer.json").write_text(json.dumps(tokenizer | {"post_processor": None}))
    with pytest.raises(ArtifactMismatch, match="gives texts no special tokens"):
        Tokenizer(with_checkpoint(contriever.SPEC, bert), "query")


def test_positions_behind_padding_are_not_counted(tmp_path: Path) -> None:
    folder = tiny.save_other(tmp_path, "xlm-roberta")
    Tokenizer(with_checkpoint(contriever.SPEC, folder), "query")
    change_config(folder, max_position_embeddings=513)
    with pytest.raises(ArtifactMismatch, match="takes 511 tokens, but 'contriever' needs 512"):
        Tokenizer(with_checkpoint(contriever.SPEC, folder), "query")


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
        ("config.json", b'{"model_type": "no such"}'),
        ("tokenizer.json", b"{"),
        ("tokenizer.json", b'{"version": "1.0"}'),
    ],
)
def test_corrupt_files_are_named(name: str, content: bytes, bert: Path) -> None:
    (bert / name).write_bytes(content)
    with pytest.raises(ArtifactCorrupt, match=f"{name} cannot be read"):
        TransformerEncoder(with_checkpoint(contriever.SPEC, bert))


def test_truncated_weights_are_named(bert: Path) -> None:
    path = bert / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ArtifactCorrupt, match=r"model\.safetensors cannot be read"):
        load(contriever.SPEC, bert)


def _as_bin(folder: Path, content: object) -> None:
    """Replace the weights by a pickle of torch's, or by bytes."""
    (folder / "model.safetensors").unlink()
    if isinstance(content, bytes):
        (folder / "pytorch_model.bin").write_bytes(content)
    else:
        torch.save(content, folder / "pytorch_model.bin")


NOT_TENSORS = {
    "nothing": b"",
    "text": b"hello",
    "zeros": bytes(1000),
    "an archive that is cut off": b"PK\x03\x04" + bytes(100),
    "a list": [torch.ones(2)],
    "a tensor": torch.ones(2),
}


@pytest.mark.parametrize("content", NOT_TENSORS.values(), ids=NOT_TENSORS)
def test_what_is_no_weights_is_named_in_our_own_words(content: object, bert: Path) -> None:
    _as_bin(bert, content)
    with pytest.raises(
        ArtifactCorrupt, match=r"/pytorch_model\.bin cannot be read \(it .*get the checkpoint of 'contriever' again$"
    ) as raised:
        load(contriever.SPEC, bert)
    assert "weights_only" not in str(raised.value)  # torch's advice to run code from the file
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_bytes_at_random_in_weights_are_no_traceback(bert: Path) -> None:
    torch.save(load_file(bert / "model.safetensors"), bert / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    (bert / "model.safetensors").unlink()
    sound = (bert / "pytorch_model.bin").read_bytes()
    generator = np.random.default_rng(4)
    refusals = []
    for _ in range(25):
        content = np.frombuffer(sound, dtype=np.uint8).copy()
        content[generator.integers(0, 4000, size=3)] = generator.integers(0, 256, size=3)  # where the names are
        (bert / "pytorch_model.bin").write_bytes(content.tobytes())
        try:
            load(contriever.SPEC, bert)
        except ArtifactError as error:
            refusals.append(str(error))
    assert len(refusals) >= 8
    assert all(refusal.startswith(f"{bert / 'pytorch_model.bin'} ") for refusal in refusals)


@pytest.mark.parametrize(
    "index",
    [
        {"weight_map": ["model.safetensors"]},
        {"weight_map": {"a": 3}},
        {"weight_map": {"a": "model.safetensors.index.json"}},  # itself
        {"weight_map": {"a": "../bert/model.safetensors"}},
        {"weight_map": {}},
        {},
        [],
    ],
    ids=str,
)
def test_an_index_of_something_else_than_weights_is_refused(index: object, bert: Path) -> None:
    (bert / "model.safetensors").unlink()
    (bert / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ArtifactCorrupt, match=r"/model\.safetensors\.index\.json cannot be read \(it "):
        load(contriever.SPEC, bert)


def test_an_index_of_a_file_that_is_not_there_is_refused(bert: Path) -> None:
    (bert / "model.safetensors").unlink()
    (bert / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}))
    with pytest.raises(InputError, match=r"is no checkpoint for 'contriever': there is no model-1\.safetensors in it"):
        load(contriever.SPEC, bert)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 5},
        {"num_attention_heads": 0},
        {"hidden_size": 10**30},
        {"intermediate_size": [3]},
        {"num_hidden_layers": -1},
    ],
    ids=str,
)
def test_impossible_sizes_are_refused(changes: dict[str, object], bert: Path) -> None:
    change_config(bert, **changes)
    with pytest.raises(ArtifactError, match=r"/bert/(config\.json|model\.safetensors) (cannot be read|does not hold)"):
        load(contriever.SPEC, bert)


def test_a_network_without_the_second_token_type_is_refused(bert: Path) -> None:
    change_config(bert, type_vocab_size=1)
    with pytest.raises(ArtifactMismatch, match="has 1 token type, but 'simlm' needs 2"):
        Tokenizer(with_checkpoint(simlm.SPEC, bert), "passage")


def test_a_token_beyond_the_networks_is_refused(bert: Path) -> None:
    tokenizer = json.loads((bert / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["river"] = 5000  # as many tokens as before
    (bert / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ArtifactMismatch, match="knows 5001 tokens, its network"):
        Tokenizer(with_checkpoint(contriever.SPEC, bert), "query")


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
    with pytest.raises(ArtifactCorrupt, match=r"pytorch_model\.bin cannot be read"):
        load(contriever.SPEC, bert)
    assert not proof.exists()
    with (bert / "pytorch_model.bin").open("wb") as file:
        pickle.dump(_Payload(proof), file, protocol=2)
    with pytest.raises(ArtifactCorrupt, match=r"pytorch_model\.bin cannot be read"):
        load(contriever.SPEC, bert)
    assert not proof.exists()


def _as_archive(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    torch.save(weights, folder / "pytorch_model.bin")


def _as_before_2020(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    weights["embeddings.position_ids"] = torch.arange(512).expand(1, -1).clone()
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def _with_head(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    head = {"cls.predictions.bias": torch.ones(3), "cls.predictions.transform.dense.weight": torch.ones(24, 24)}
    save_file({f"bert.{name}": tensor for name, tensor in weights.items()} | head, folder / "model.safetensors")


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


def _in_shards(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    in_shards(folder)


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
    weights = load_file(dense / "model.safetensors")
    save_file(weights | {"linear.bias": torch.zeros(10)}, dense / "model.safetensors")
    with pytest.raises(ArtifactMismatch, match=r"holds linear\.bias .*linear\.weight .* instead of linear\.weight"):
        load(gtr.SPEC, t5)
    for shape in ((10, 25), (10,), (10, 24, 1)):
        save_file({"linear.weight": torch.zeros(shape)}, dense / "model.safetensors")
        with pytest.raises(ArtifactMismatch, match=rf"holds linear\.weight {re.escape(str(shape))} .* give vectors of 24 components"):
            load(gtr.SPEC, t5)
    save_file({"linear.weight": torch.zeros((10, 24), dtype=torch.int8)}, dense / "model.safetensors")
    with pytest.raises(ArtifactMismatch, match=r"2_Dense/model\.safetensors holds linear\.weight .*int8"):
        load(gtr.SPEC, t5)
    for content in ("[]", "[" * 100_000, '{"activation_function": 3}'):
        (dense / "config.json").write_text(content)
        with pytest.raises(ArtifactError, match=r"2_Dense/config\.json (cannot be read|has the activation function 3)"):
            load(gtr.SPEC, t5)
    (dense / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"there is no 2_Dense/model\.safetensors \(or 2_Dense/pytorch_model\.bin\) in it"):
        load(gtr.SPEC, t5)


def test_a_device_without_room_for_the_weights_is_named(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers.BertModel, "to", lambda network, *to: torch.empty(1 << 46, dtype=torch.uint8))  # which no machine has
    with pytest.raises(IdxError, match="^cpu has too little memory for the encoder 'contriever': end what else uses it, or name"):
        load(contriever.SPEC, bert)


@pytest.mark.parametrize("error", [RuntimeError(""), RuntimeError("\n\n"), AssertionError()], ids=repr)
def test_a_device_that_says_nothing_is_named(error: Exception, bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(torch, "empty", fail)
    with pytest.raises(InputError, match=f"^the device 'cpu' cannot be used: {type(error).__name__}$"):
        load(contriever.SPEC, bert)


def test_loading_says_nothing(bert: Path, capfd: pytest.CaptureFixture[str]) -> None:
    transformers.utils.logging.set_verbosity_warning()
    change_weights(bert, lambda weights: weights.pop("pooler.dense.bias"))  # which transformers itself would warn of
    capfd.readouterr()
    TransformerEncoder(with_checkpoint(contriever.SPEC, bert)).encode_queries(["a " * 1000])
    assert capfd.readouterr() == ("", "")
