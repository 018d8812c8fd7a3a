"""Any checkpoint as an encoder, against sentence-transformers on the same folder."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.indexer.encoders import tiny
from tests.indexer.encoders.golden import Golden, is_equal
from tests.indexer.encoders.test_references import QUERIES
from wikidx.base.errors import ArtifactCorrupt, ArtifactMismatch, IdxError, InputError, UnknownNameError
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders import recipes
from wikidx.indexer.encoders.anywhere import read_recipe, spec_from_recipe
from wikidx.indexer.encoders.recipes import RecipeOptions
from wikidx.indexer.encoders.spec import EncoderSpec, weight_checksums
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec, index_names, name_encoder, parse_index_name

MAX_DIFFERENCE = 1e-5
PASSAGES = [Passage("1", "", text) for text in ("the nile", "", "a river of rivers", "The Nile's rivers: 1, 2", "river of " * 300)]
LENGTHS = {"modernbert": 512, "xlm-roberta": 512, "roberta": 512, "mpnet": 512, "distilbert": 512, "nomic_bert": 512}


def spec_of(folder: Path, **choices: Any) -> EncoderSpec:  # noqa: ANN401 - of an option
    return spec_from_recipe("mine", read_recipe(str(folder), RecipeOptions(**choices)))


def assert_same(got: Vectors, expected: Vectors) -> None:
    assert got.shape == expected.shape
    assert len(np.unique(got.round(4), axis=0)) == len(got)  # or the comparison would say little
    assert np.abs(got - expected).max() <= MAX_DIFFERENCE


def loaded(folder: Path) -> Any:  # noqa: ANN401 - imported late: it takes seconds
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def compare(folder: Path, **choices: Any) -> None:  # noqa: ANN401 - of an option
    """Compare vectors with those of sentence-transformers, normalised if it compares them by the cosine."""
    encoder, reference = TransformerEncoder(spec_of(folder, **choices)), loaded(folder)
    options = {"normalize_embeddings": reference.similarity_fn_name == "cosine", "show_progress_bar": False, "batch_size": 3}
    assert_same(encoder.encode_queries(QUERIES), reference.encode_query(QUERIES, **options))
    assert_same(encoder.encode_passages(PASSAGES), reference.encode_document([passage.text for passage in PASSAGES], **options))


def save(network: Path, folder: Path, *layers: Any, length: int | None = None, lower: bool = False, **settings: Any) -> Path:  # noqa: ANN401
    """Save modules after a network as sentence-transformers does."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Transformer

    torch.manual_seed(5)
    transformer = Transformer(str(network), max_seq_length=length, do_lower_case=lower)
    SentenceTransformer(modules=[transformer, *layers], device="cpu", **settings).save(str(folder))
    return folder


@pytest.mark.parametrize("architecture", [*tiny.ARCHITECTURES, "bert", "t5"])
def test_a_bare_checkpoint_is_read_as_sentence_transformers_does(architecture: str, tmp_path: Path) -> None:
    savers = {"bert": tiny.save_bert, "t5": tiny.save_t5}
    folder = savers[architecture](tmp_path) if architecture in savers else tiny.save_other(tmp_path, architecture)
    compare(folder)


@pytest.mark.parametrize("architecture", ["qwen3", "mistral"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_language_models_last_token_is_taken_whatever_the_padding(architecture: str, side: str, tmp_path: Path) -> None:
    folder = tiny.save_other(tmp_path, architecture, with_head=True)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"padding_side": side}))
    assert spec_of(folder).pooling == "lasttoken"
    compare(folder)


@pytest.mark.parametrize(
    "modes",
    ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("cls", "mean"), ("max", "weightedmean", "lasttoken")],
)
@pytest.mark.parametrize("with_prompt", [True, False])
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


def test_prompts_are_found_by_their_names(tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    folder = save(tiny.save_bert(tmp_path / "bert"), tmp_path / "saved", Pooling(24, "cls"))
    for prompts, default, expected in (
        ({"query": "q: ", "document": "d: "}, None, ("q: ", "d: ")),
        ({"query": "q: ", "document": "", "passage": "p: "}, None, ("q: ", "p: ")),
        ({"search": "s: "}, "search", ("s: ", "s: ")),  # as of ``encode``, for which the folder was made
        ({"query": "", "document": "", "search": "s: "}, "search", ("", "")),
        ({}, None, ("", "")),
    ):
        content = {"prompts": prompts, "default_prompt_name": default, "similarity_fn_name": None}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(content))
        spec = spec_of(folder)
        assert (spec.query_prompt, spec.passage_prompt) == expected


def test_options_replace_what_the_files_say(tmp_path: Path) -> None:
    folder = tiny.save_bert(tmp_path / "bert")
    choices = {"pooling": "cls+last", "normalize": False, "query_prompt": "the ", "passage_prompt": "a ", "max_tokens": 9, "dim": 40}
    encoder = TransformerEncoder(spec_of(folder, **choices))
    network, tokenizer = transformers.BertModel.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)
    rows = []
    with torch.inference_mode():
        for text in QUERIES:
            hidden = network(**tokenizer(f"the {text}", truncation=True, max_length=9, return_tensors="pt")).last_hidden_state[0]
            rows.append(torch.cat([hidden[0], hidden[-1]])[:40].numpy())
    assert encoder.dim == 40
    assert np.abs(encoder.encode_queries(QUERIES) - np.stack(rows)).max() <= MAX_DIFFERENCE


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
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    spec = spec_of(folder)
    np.testing.assert_array_equal(TransformerEncoder(spec).encode_queries(QUERIES), expected)
    assert "passage ../2_Dense/model.safetensors" in weight_checksums(spec)


@pytest.mark.slow  # ten seconds
@pytest.mark.parametrize("side", ["query", "passage"])
def test_minilm_by_its_folder_has_the_vectors_of_its_authors_library(side: Any, shared_data: Path) -> None:  # noqa: ANN401 - a literal
    golden = Golden(shared_data / "golden_encoders" / "minilm")
    encoder, texts = TransformerEncoder(spec_of(encoder_spec("minilm").folder("query"))), golden.texts(side)
    passages = [text for text in texts if isinstance(text, Passage)]
    found = encoder.encode_passages(passages) if passages else encoder.encode_queries([str(text) for text in texts])
    assert len(found) == 24
    assert is_equal(found, golden.vectors(f"{side}_vectors")).all()


MODULES: list[tuple[str, str]] = [
    ("sentence_transformers.models.CLIPModel", "consists of CLIPModel, Pooling"),
    ("custom_st.Transformer", r"consists of custom_st\.Transformer, Pooling"),
]


@pytest.mark.parametrize(("type_", "message"), MODULES)
def test_other_modules_are_refused(type_: str, message: str, tmp_path: Path) -> None:
    folder = tiny.add_modules(tiny.save_bert(tmp_path / "bert"), "mean")
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = type_
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=message):
        spec_of(folder)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", "[", "modules.json cannot be read"),
        ("modules.json", "{}", "consists of nothing"),
        ("modules.json", '[{"type": 3, "path": ""}]', "modules.json cannot be read"),
        ("1_Pooling/config.json", '{"pooling_mode": "median"}', "pooling 'median': .*use cls, mean"),
        ("config_sentence_transformers.json", '{"similarity_fn_name": "manhattan"}', "by 'manhattan': only cosine and dot"),
        ("config_sentence_transformers.json", '{"prompts": []}', None),
        ("sentence_bert_config.json", '{"modality_config": {"message": {}}}', "reads texts with a chat template"),
        ("sentence_bert_config.json", '{"model_args": {"adapter": 3, "torch_dtype": "float16"}}', "reads texts with adapter: this"),
    ],
)
def test_what_cannot_be_computed_is_refused(file: str, content: str, message: str | None, tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    folder = save(tiny.save_bert(tmp_path / "bert"), tmp_path / "saved", Pooling(24, "cls"))
    (folder / file).write_text(content)
    if message is None:
        assert spec_of(folder).query_prompt == ""
        return
    with pytest.raises((InputError, ArtifactCorrupt), match=message) as raised:
        spec_of(folder)
    assert "\n" not in str(raised.value)


def test_code_of_a_checkpoint_is_run_only_if_it_is_trusted(tmp_path: Path) -> None:
    folder = tiny.save_bert(tmp_path / "bert")
    expected = TransformerEncoder(spec_of(folder)).encode_queries(QUERIES)
    config = json.loads((folder / "config.json").read_text())
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}}
    (folder / "config.json").write_text(json.dumps(config | own))
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


def test_names_that_mean_something_else_are_refused(tmp_path: Path, home: Path) -> None:
    folder = tiny.save_bert(tmp_path / "bert")
    for name in ("minilm", "bm25", "ivf", "mine-int8"):
        with pytest.raises(
            InputError, match=rf"'{name}' is the name of another encoder or of an index: name this one with --encoder NAME="
        ):
            name_encoder(f"{name}={folder}")
    with pytest.raises(InputError, match="cannot be a name"):
        name_encoder(f"Ä={folder}")
    with pytest.raises(UnknownNameError, match=r"unknown encoder 'minilmm': did you mean 'minilm'.*or name a checkpoint by its folder"):
        name_encoder("minilmm")
    with pytest.raises(InputError, match="there is no folder ./none with a checkpoint"):
        name_encoder("./none")
    with pytest.raises(InputError, match="'minilm' has its own settings"):
        name_encoder("minilm", RecipeOptions(pooling="cls"))
    name_encoder(f"mine={folder}")
    name_encoder(f"mine={folder}", RecipeOptions(pooling="cls"))  # there are no vectors of the first
    (home / "corpus" / "vectors" / "mine").mkdir(parents=True)
    with pytest.raises(InputError, match=r"'mine' is another encoder \(pooling cls, not mean\): name this one with --encoder NAME="):
        name_encoder(f"mine={folder}")
    assert name_encoder(f"mine={folder}", replace=True) == "mine"
    assert encoder_spec("mine").pooling == "mean"
    for corrupt in (
        {"checkpoint": "/nowhere"},
        {"checkpoint": 3},
        {"checkpoint": 3, "url": "http://127.0.0.1/v1", "names_sides": True},
    ):
        (home / "encoders" / "mine.json").write_text(json.dumps(corrupt))
        recipes._own.clear()  # as for another process
        recipes._read.cache_clear()  # as for a later time of change
        with pytest.raises(ArtifactCorrupt, match="the recipe of the encoder 'mine' cannot be read"):
            encoder_spec("mine")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": "x"}, "dim is 'x': it should be a valid integer"),
        ({"dim": -1}, "dim is -1"),
        ({"pooling": 7}, "pooling is 7: it should be a valid string"),
        ({"pooling": ""}, "pooling '': .*use cls, mean"),
        ({"checkpoint": "openai:tiny@http://127.0.0.1/v1"}, "it is a served model without 'url'"),
        ({"pooling": "median"}, "pooling 'median': .*use cls, mean"),
        ({"max_query_tokens": None}, "max_query_tokens is None"),
        ({"max_passage_tokens": 9.5}, "max_passage_tokens is 9.5"),
        ({"normalize": "no"}, "normalize is 'no'"),
        ({"dense": "2_Dense"}, "dense is '2_Dense': it should be a valid tuple"),
        ({"dense": [3]}, "dense.0 is 3"),
        ({"truncate_dim": 0}, "truncate_dim is 0"),
        ({"gpu_dtype": "half"}, "gpu_dtype is 'half'"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_stored_recipe_with_values_of_another_kind_is_corrupt(change: dict[str, Any], message: str, tmp_path: Path, home: Path) -> None:
    name_encoder(f"mine={tiny.save_bert(tmp_path / 'bert')}")
    file = home / "encoders" / "mine.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    recipes._own.clear()  # as for another process
    recipes._read.cache_clear()  # as for a later time of change
    with pytest.raises(ArtifactCorrupt, match=f"the recipe of the encoder 'mine' cannot be read .{message}") as raised:
        encoder_spec("mine")
    assert "\n" not in str(raised.value)


def test_a_dense_layer_of_another_form_is_refused(tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling

    folder = save(tiny.save_bert(tmp_path / "bert"), tmp_path / "saved", Pooling(24, "cls"), Dense(24, 9))
    config = next(folder.glob("*_Dense/config.json"))
    sound = json.loads(config.read_text())
    for change, message in (
        ({"activation_function": "os.system"}, "has the activation function os.system"),
        ({"activation_function": "torch.nn.Threshold"}, "only those of torch.nn that need no arguments"),
        ({"activation_function": "torch.nn.warnings"}, "only those of torch.nn that need no arguments"),
        ({"activation_function": "torch.nn.Module"}, "only those of torch.nn that need no arguments"),
        ({"use_residual": True}, r"holds linear\.bias .* instead of linear\.weight and linear\.bias and residual\.weight"),
        ({"module_output_name": "other"}, "does not replace 'sentence_embedding'"),
        ({"bias": False}, r"holds linear\.bias .* instead of linear\.weight"),
    ):
        config.write_text(json.dumps(sound | change))
        with pytest.raises(ArtifactMismatch, match=message):
            TransformerEncoder(spec_of(folder))


def test_the_hubs_form_is_read_from_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    from tests.loopback import serving

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    prompts = {"query": "the ", "document": "of "}
    folder = save(
        tiny.save_bert(tmp_path / "bert"), tmp_path / "hub" / "owner" / "name" / "resolve" / "v2", Pooling(24, "max"), prompts=prompts
    )
    expected = TransformerEncoder(spec_of(folder)).encode_queries(QUERIES)
    with serving(tmp_path / "hub") as address:
        monkeypatch.setenv("IDX_MIRROR", address)
        assert name_encoder("owner/name@v2") == "name"
    shutil.rmtree(tmp_path / "hub")
    np.testing.assert_array_equal(TransformerEncoder(encoder_spec("name")).encode_queries(QUERIES), expected)
    assert re.match("the", encoder_spec("name").query_prompt)
