"""Any checkpoint as an encoder, against sentence-transformers on the same folder; recipes and their names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import read_rows
from tests.contracts.test_encoder import QUERIES
from tests.indexer.encoders import tiny
from tests.indexer.encoders.anywhere import save, spec_of
from tests.indexer.encoders.changes import Change, changed, edited, written
from tests.loopback import serving
from wikidx.base import errors
from wikidx.base.errors import ArtifactCorrupt, ArtifactMismatch, IdxError, InputError
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders import recipes
from wikidx.indexer.encoders.anywhere import read_recipe
from wikidx.indexer.encoders.recipes import RecipeOptions
from wikidx.indexer.encoders.spec import weight_checksums
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec, index_names, name_encoder, parse_index_name

MAX_DIFFERENCE = 1e-5
PASSAGES = [Passage("1", "", text) for text in ("the nile", "", "a river of rivers", "The Nile's rivers: 1, 2", "river of " * 300)]


def compare(folder: Path, same_as: Path | None = None, **choices: Any) -> None:  # noqa: ANN401 - of an option
    """Compare vectors with those of sentence-transformers, normalised if it compares them by the cosine."""
    from sentence_transformers import SentenceTransformer  # seconds, which other tests need not wait for

    encoder = TransformerEncoder(spec_of(folder, **choices))
    reference: Any = SentenceTransformer(str(same_as or folder), device="cpu", local_files_only=True)
    options = {"normalize_embeddings": reference.similarity_fn_name == "cosine", "show_progress_bar": False, "batch_size": 3}
    assert_same(encoder.encode_queries(QUERIES), reference.encode_query(QUERIES, **options))
    assert_same(encoder.encode_passages(PASSAGES), reference.encode_document([passage.text for passage in PASSAGES], **options))


def assert_same(got: Vectors, expected: Vectors) -> None:
    assert got.shape == expected.shape
    assert len(np.unique(got.round(4), axis=0)) == len(got)  # or the comparison would say little
    assert np.abs(got - expected).max() <= MAX_DIFFERENCE


def save_pooled(folder: Path, pooling: str = "cls", **settings: Any) -> Path:  # noqa: ANN401 - of ``save``
    from sentence_transformers.sentence_transformer.modules import Pooling

    return save(tiny.save_bert(folder / "bert"), folder / "saved", Pooling(24, pooling), **settings)


def save_dense(folder: Path) -> Path:
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling

    return save(tiny.save_bert(folder / "bert"), folder / "saved", Pooling(24, "cls"), Dense(24, 9))


@pytest.mark.parametrize("architecture", ["roberta", "llama", "nomic_bert", "bert", "t5"])  # the contract compares each network
def test_a_bare_checkpoint_is_read_as_the_library_does(architecture: str, tmp_path: Path) -> None:
    savers = {"bert": tiny.save_bert, "t5": tiny.save_t5}
    folder = savers[architecture](tmp_path) if architecture in savers else tiny.save_other(tmp_path, architecture)
    compare(folder)


@pytest.mark.parametrize("architecture", ["qwen3", "mistral"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_last_token_is_taken_whatever_the_padding(architecture: str, side: str, tmp_path: Path) -> None:
    folder = tiny.save_other(tmp_path, architecture, with_head=True)
    changed("tokenizer_config.json", padding_side=side)(folder)
    assert spec_of(folder).pooling == "lasttoken"
    compare(folder)


@pytest.mark.parametrize(
    ("modes", "with_prompt"),
    [
        *((mode, True) for mode in ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")),
        *((modes, False) for modes in ("mean", ("cls", "mean"), ("max", "weightedmean", "lasttoken"))),
    ],
)
def test_every_pooling_with_and_without_the_prompt(modes: str | tuple[str, ...], with_prompt: bool, tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    prompts = {"query": "the river: ", "document": "of a "}
    pooling = Pooling(24, modes, include_prompt=with_prompt)
    compare(save(tiny.save_bert(tmp_path / "bert"), tmp_path / "saved", pooling, length=70, prompts=prompts))


def test_dense_layers_lower_case_truncation_and_a_scalar_product(tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Dense, Dropout, Normalize, Pooling

    layers = [
        Dense(24, 30, use_residual=True),
        Dropout(0.5),
        Dense(30, 30, use_residual=True),
        Dense(30, 16, bias=False, activation_function=torch.nn.Identity()),
    ]
    network = tiny.save_other(tmp_path / "qwen3", "qwen3")
    settings: dict[str, Any] = {"prompts": {"query": "Instruct: find\nQuery:"}, "truncate_dim": 7, "lower": True, "length": 50}
    folder = save(network, tmp_path / "dot", Pooling(24, "lasttoken"), *layers, similarity_fn_name="dot", **settings)
    spec = spec_of(folder)
    assert (spec.dim, spec.normalize, spec.max_query_tokens, spec.query_prompt) == (7, False, 50, "Instruct: find\nQuery:")
    compare(folder)
    compare(save(network, tmp_path / "cosine", Pooling(24, "mean"), *layers, Normalize(), **settings))


@pytest.mark.parametrize(
    ("prompts", "default", "of_query", "of_passage"),
    [
        ({"query": "q: ", "document": "d: "}, None, "q: ", "d: "),
        ({"query": "q: ", "document": "", "passage": "p: "}, None, "q: ", "p: "),
        ({"search": "s: "}, "search", "s: ", "s: "),  # as of ``encode``, for which the folder was made
        ({"query": "", "document": "", "search": "s: "}, "search", "", ""),
        ({}, None, "", ""),
        ([], None, "", ""),
    ],
)
def test_prompts_are_found_by_their_names(prompts: object, default: str | None, of_query: str, of_passage: str, tmp_path: Path) -> None:
    folder = save_pooled(tmp_path)
    changed("config_sentence_transformers.json", prompts=prompts, default_prompt_name=default, similarity_fn_name=None)(folder)
    spec = spec_of(folder)
    assert (spec.query_prompt, spec.passage_prompt) == (of_query, of_passage)


def test_options_replace_what_the_files_say(tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    network, prompts = tiny.save_bert(tmp_path / "bert"), {"query": "the ", "document": "a "}
    settings: dict[str, Any] = {"prompts": prompts, "truncate_dim": 40, "similarity_fn_name": "dot"}
    wanted = save(network, tmp_path / "wanted", Pooling(24, ("cls", "lasttoken")), length=9, **settings)
    choices = {"pooling": "cls+last", "normalize": False, "query_prompt": "the ", "passage_prompt": "a ", "max_tokens": 9, "dim": 40}
    compare(network, wanted, **choices)


def test_a_title_is_before_the_text(tmp_path: Path) -> None:
    encoder = TransformerEncoder(spec_of(tiny.save_bert(tmp_path), passage_prompt="a: "))
    found = encoder.encode_passages([Passage("1", "nile", "river")])
    np.testing.assert_allclose(found, TransformerEncoder(spec_of(tmp_path, query_prompt="a: nile ")).encode_queries(["river"]), atol=1e-6)


def test_a_network_in_a_folder_of_its_own_is_found(tmp_path: Path) -> None:
    """The library wrote such folders before its second version."""
    folder = tiny.add_modules(tiny.save_t5(tmp_path / "t5"), "mean", dim=10)
    expected = TransformerEncoder(spec_of(folder)).encode_queries(QUERIES)
    (folder / "0_Transformer").mkdir()
    for path in [*folder.glob("*.json"), *folder.glob("*.safetensors")]:
        if path.name not in ("modules.json", "config_sentence_transformers.json"):
            path.rename(folder / "0_Transformer" / path.name)
    edited("modules.json", lambda modules: modules[0].update(path="0_Transformer"))(folder)
    spec = spec_of(folder)
    np.testing.assert_array_equal(TransformerEncoder(spec).encode_queries(QUERIES), expected)
    assert "passage ../2_Dense/model.safetensors" in weight_checksums(spec)


def dense(**values: object) -> Change:
    return lambda folder: changed("config.json", **values)(next(folder.glob("*_Dense")))


def first_module(type_: str) -> Change:
    return edited("modules.json", lambda modules: modules[0].update(type=type_))


NO_ARGUMENTS = "only those of torch.nn that need no arguments"
SETTINGS, TRANSFORMER = "config_sentence_transformers.json", "sentence_bert_config.json"
REFUSED: list[tuple[Callable[[Path], Path], Change, type[IdxError], str]] = [
    (save_pooled, first_module("sentence_transformers.models.CLIPModel"), InputError, "consists of CLIPModel, Pooling"),
    (save_pooled, first_module("custom_st.Transformer"), InputError, r"consists of custom_st\.Transformer, Pooling"),
    (save_pooled, written("modules.json", "{}"), InputError, "consists of nothing"),
    (save_pooled, changed("1_Pooling/config.json", pooling_mode="median"), InputError, "pooling 'median': .*use cls, mean"),
    (save_pooled, changed(SETTINGS, similarity_fn_name="manhattan"), InputError, "by 'manhattan': only cosine and dot"),
    (save_pooled, changed(TRANSFORMER, modality_config={"message": {}}), InputError, "reads texts with a chat template"),
    (save_pooled, changed(TRANSFORMER, model_args={"adapter": 3, "dtype": "float16"}), InputError, "reads texts with adapter: this"),
    (save_dense, dense(activation_function="os.system"), ArtifactMismatch, "has the activation function os.system"),
    (save_dense, dense(activation_function="torch.nn.Threshold"), ArtifactMismatch, NO_ARGUMENTS),
    (save_dense, dense(activation_function="torch.nn.warnings"), ArtifactMismatch, NO_ARGUMENTS),
    (save_dense, dense(activation_function="torch.nn.Module"), ArtifactMismatch, NO_ARGUMENTS),
    (save_dense, dense(use_residual=True), ArtifactMismatch, r"holds linear\.bias .* instead of linear\.weight and .* residual\.weight"),
    (save_dense, dense(module_output_name="other"), ArtifactMismatch, "does not replace 'sentence_embedding'"),
    (save_dense, dense(bias=False), ArtifactMismatch, r"holds linear\.bias .* instead of linear\.weight"),
]


@pytest.mark.parametrize(("make", "change", "error", "words"), REFUSED)
def test_what_cannot_be_computed_is_refused(
    make: Callable[[Path], Path], change: Change, error: type[IdxError], words: str, tmp_path: Path
) -> None:
    folder = make(tmp_path)
    change(folder)
    with pytest.raises(error, match=words) as raised:
        TransformerEncoder(spec_of(folder))
    assert "\n" not in str(raised.value)


def test_code_of_a_checkpoint_is_run_only_if_it_is_trusted(tmp_path: Path) -> None:
    folder = tiny.save_bert(tmp_path / "bert")
    expected = TransformerEncoder(spec_of(folder)).encode_queries(QUERIES)
    changed("config.json", model_type="own", auto_map={"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"})(folder)
    (folder / "own.py").write_text(
        "import transformers\n"
        "class OwnConfig(transformers.BertConfig):\n    model_type = 'own'\n"
        "class OwnModel(transformers.BertModel):\n    config_class = OwnConfig\n"
    )
    with pytest.raises(IdxError, match="custom code"):
        spec_of(folder)
    spec = spec_of(folder, trust_remote_code=True)
    np.testing.assert_allclose(TransformerEncoder(spec).encode_queries(QUERIES), expected, atol=1e-6)
    assert "passage own.py" in weight_checksums(spec)
    with pytest.raises(InputError, match="--trust-remote-code owner/name: download the repository, read its code"):
        read_recipe("owner/name", RecipeOptions(trust_remote_code=True))


def test_a_checkpoint_gets_a_short_name_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny.save_bert(tmp_path / "My Model_v1.5")
    assert name_encoder(str(folder)) == "my-model_v1.5"
    assert encoder_spec("my-model_v1.5").query_checkpoint == folder
    index = parse_index_name("my-model_v1.5-ivfpq")
    assert (index.encoder, index.kind) == ("my-model_v1.5", "ivfpq")
    assert {"my-model_v1.5", "my-model_v1.5-hnsw"} <= set(index_names())
    monkeypatch.chdir(tmp_path)
    assert name_encoder("mine=My Model_v1.5", RecipeOptions(pooling="cls")) == "mine"
    assert encoder_spec("mine").pooling == "cls"
    assert name_encoder("gtr-base") == "gtr"


@pytest.mark.parametrize(("source", "options", "error", "words"), read_rows("indexer/encoders/refused_names.jsonl"))
def test_a_name_that_cannot_be_given_is_refused(source: str, options: dict[str, Any], error: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(getattr(errors, error), match=words):
        name_encoder(source.format(tiny.save_bert(tmp_path)), RecipeOptions(**options))


def test_a_name_is_given_to_another_only_by_force(tmp_path: Path, home: Path) -> None:
    folder = tiny.save_bert(tmp_path / "bert")
    name_encoder(f"mine={folder}")
    name_encoder(f"mine={folder}", RecipeOptions(pooling="cls"))  # there are no vectors of the first
    (home / "corpus" / "vectors" / "mine").mkdir(parents=True)
    with pytest.raises(InputError, match=r"'mine' is another encoder \(pooling cls, not mean\): name this one with --encoder NAME="):
        name_encoder(f"mine={folder}")
    assert name_encoder(f"mine={folder}", replace=True) == "mine"
    assert encoder_spec("mine").pooling == "mean"


@pytest.mark.parametrize(("change", "message"), read_rows("indexer/encoders/bad_recipes.jsonl"))
def test_a_recipe_with_values_of_another_kind_is_corrupt(change: dict[str, Any], message: str, tmp_path: Path, home: Path) -> None:
    name_encoder(f"mine={tiny.save_bert(tmp_path / 'bert')}")
    file = home / "encoders" / "mine.json"
    stored = json.loads(file.read_text()) | change
    file.write_text(json.dumps({name: value for name, value in stored.items() if value != "missing"}))
    recipes._own.clear()  # as for another process
    recipes._read.cache_clear()  # as for a later time of change
    with pytest.raises(ArtifactCorrupt, match=f"the recipe of the encoder 'mine' cannot be read .{message}") as raised:
        encoder_spec("mine")
    assert "\n" not in str(raised.value)


def test_the_hubs_form_is_read_from_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    hub = tmp_path / "hub" / "owner" / "name" / "resolve" / "v2"
    hub.parent.mkdir(parents=True)
    folder = save_pooled(tmp_path, "max", prompts={"query": "the ", "document": "of "}).rename(hub)
    expected = TransformerEncoder(spec_of(folder)).encode_queries(QUERIES)
    with serving(tmp_path / "hub") as address:
        monkeypatch.setenv("IDX_MIRROR", address)
        assert name_encoder("owner/name@v2") == "name"
    shutil.rmtree(tmp_path / "hub")
    np.testing.assert_array_equal(TransformerEncoder(encoder_spec("name")).encode_queries(QUERIES), expected)
    assert encoder_spec("name").query_prompt == "the "
