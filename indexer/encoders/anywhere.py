"""Encoders from any checkpoint: a sentence-transformers folder is read as that library means it, another by its options.

Source: sentence-transformers 6.2, ``base/model.py``, ``base/modules``, ``sentence_transformer/model.py`` and ``modules/pooling.py``. The
library compares vectors by the cosine unless the folder says otherwise; as searches here compare by the inner product, the vectors are
then normalised even if the folder has no ``Normalize``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.base.errors import ArtifactCorrupt, InputError
from wikidx.indexer.networks.checkpoints import CONFIG, HubCheckpoint, ServedModel, locate, parse_checkpoint, required_files
from wikidx.indexer.networks.loading import load_config, n_positions
from wikidx.indexer.networks.module_folders import SETTINGS, Module, default_prompt, optional_json, read_modules, transformer_settings
from wikidx.indexer.networks.pooling import split_modes
from wikidx.indexer.networks.tokenizers import load_any_tokenizer

from .plugged import spec_of_absent
from .recipes import Recipe, RecipeOptions
from .served import served_recipe, spec_of_served
from .spec import EncoderSpec

_ENDLESS = 1_000_000  # a larger limit of a tokenizer stands for no limit
_DEFAULT_TOKENS = 512  # of a checkpoint without any limit
_TASK = "feature-extraction"
_LOADING = ("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs", "processing_kwargs")
_WITHOUT_EFFECT = {"trust_remote_code", "torch_dtype", "dtype", "attn_implementation", "padding_side", "use_cache"}  # on the vectors
_LEGACY_MODES = {  # in the order in which they are concatenated
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_IN_BFLOAT16 = ("t5", "mt5", "umt5", "longt5", "gemma")  # model types whose computation can overflow float16


def spec_from_recipe(name: str, recipe: Recipe) -> EncoderSpec:
    """Return the encoder of a recipe from ``read_recipe``.

    Raises:
        ArtifactCorrupt: the recipe lacks settings, has unknown ones, or has values of another type.
    """
    try:
        if "url" in recipe:
            return spec_of_served(name, recipe)
        if "plugin" in recipe:
            return spec_of_absent(name, recipe)
        checkpoint = parse_checkpoint(recipe["checkpoint"])
        if isinstance(checkpoint, ServedModel):
            raise TypeError("it is a served model without 'url'")
        settings: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in recipe.items() if key != "checkpoint"
        }
        return EncoderSpec(name=name, query_checkpoint=checkpoint, passage_checkpoint=checkpoint, by_transformers=True, **settings)
    except (KeyError, TypeError, AttributeError, InputError) as error:  # AttributeError: a number where a text belongs
        raise ArtifactCorrupt(
            f"the recipe of the encoder '{name}' cannot be read ({error}): name the encoder again with --force"
        ) from error


def read_recipe(source: str, choices: RecipeOptions) -> Recipe:
    """Return the settings of an encoder from a checkpoint's files and from options, as JSON.

    Args:
        source: see ``parse_checkpoint``.
        choices: options of the user, which take precedence.

    Raises:
        InputError: there is no such checkpoint, or it has parts that are not supported.
        ArtifactCorrupt: the files cannot be read.
        DownloadError, MissingExtraError: see ``checkpoints.locate``.
    """
    checkpoint = parse_checkpoint(source)
    if isinstance(checkpoint, ServedModel):
        return served_recipe(checkpoint, source, choices)
    if choices.trust_remote_code and isinstance(checkpoint, HubCheckpoint):
        raise InputError(f"--trust-remote-code {source}: download the repository, read its code, and name its folder with --encoder")
    try:
        return _read_recipe(_Source(checkpoint, source), choices)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ArtifactCorrupt(f"{source} is no checkpoint of sentence-transformers or transformers: {error!r:.200}") from error


class _Source(NamedTuple):
    """A checkpoint, and its name for messages."""

    checkpoint: Path | HubCheckpoint
    name: str

    def json(self, file: str) -> Mapping[str, Any]:
        """Return the object in a file; empty if the checkpoint has no such file."""
        return optional_json(self.checkpoint, file, self.name)


def _read_recipe(source: _Source, choices: RecipeOptions) -> Recipe:
    """Return the recipe. Settings of the folder replace those of the network, and options of the user replace both."""
    modules = read_modules(*source)
    layers = {} if modules is None else _read_modules(source, modules)
    place, dim, n_tokens = (layers.pop(name, None) for name in ("place", "dense_dim", "max_tokens"))
    checkpoint = source.checkpoint / place if place and isinstance(source.checkpoint, Path) else source.checkpoint
    dense = layers.get("dense", [])
    network = _read_network(locate(checkpoint, source.name, required_files(dense, by_transformers=True)), source.name, n_tokens, choices)
    chosen = {
        "pooling": choices.pooling,
        "normalize": choices.normalize,
        "query_prompt": choices.query_prompt,
        "passage_prompt": choices.passage_prompt,
        "truncate_dim": choices.dim,
        "trusts_code": choices.trust_remote_code or None,
    }
    recipe = {"checkpoint": str(checkpoint), **network, **layers, **{key: value for key, value in chosen.items() if value is not None}}
    dim = dim or network["dim"] * len(split_modes(recipe["pooling"]))
    return recipe | {"dense": dense, "dim": min(dim, recipe["truncate_dim"] or dim)}


def _read_modules(source: _Source, modules: Sequence[Module]) -> dict[str, Any]:
    """Return the settings of ``EncoderSpec`` that a sentence-transformers folder has.

    Also "place", the network's folder; "dense_dim", components of the last dense layer's vectors; and "max_tokens". None: not given.
    """
    kinds = [module.kind if module.type_.startswith("sentence_transformers.") else module.type_ for module in modules]
    after = [kind for kind in kinds[2:] if kind != "Dropout"]
    if kinds[:2] != ["Transformer", "Pooling"] or set(after) - {"Dense", "Normalize"} or "Dense" in after[after.count("Dense") :]:
        raise InputError(
            f"{source.name} consists of {', '.join(kinds) or 'nothing'}: only Transformer, Pooling, Dense layers, Normalize are supported"
        )
    place = modules[0].path
    if place and isinstance(source.checkpoint, HubCheckpoint):
        raise InputError(f"{source.name} has its network in {place}: download the repository, and name its folder with --encoder")
    dense = [folder for kind, (_, folder) in zip(kinds, modules, strict=True) if kind == "Dense"]
    pooling = source.json(f"{modules[1].path}/{CONFIG}")
    if not pooling:
        raise KeyError(f"{modules[1].path}/{CONFIG}")
    modes = pooling.get("pooling_mode") or [mode for key, mode in _LEGACY_MODES.items() if pooling.get(key)] or ["mean"]
    return {
        "place": place,
        "dense": [f"../{folder}" if place else folder for folder in dense],
        "dense_dim": source.json(f"{dense[-1]}/{CONFIG}")["out_features"] if dense else None,
        **_read_transformer(source, place),
        "pooling": modes if isinstance(modes, str) else "+".join(modes),
        "pools_prompt": pooling.get("include_prompt", True),
        **_read_comparison(source, is_normalized="Normalize" in kinds),
    }


def _read_transformer(source: _Source, place: str) -> dict[str, Any]:
    """Return the settings of the module ``Transformer``."""
    config = transformer_settings(*source, place)
    changes = {key for name in _LOADING for key in config.get(name) or {}} - _WITHOUT_EFFECT
    task, has_chat = config.get("transformer_task", _TASK), "message" in config.get("modality_config", {})
    if changes or has_chat or task != _TASK:
        reason = ", ".join(sorted(changes)) or ("a chat template" if has_chat else f"the task {task}")
        raise InputError(f"{source.name} reads texts with {reason}: this is not supported")
    lengths = {"max_query_tokens": config.get("query_length"), "max_passage_tokens": config.get("document_length")}
    given = {name: length for name, length in lengths.items() if length}
    return {"max_tokens": config.get("max_seq_length"), "lower_case": bool(config.get("do_lower_case")), **given}


def _read_comparison(source: _Source, *, is_normalized: bool) -> dict[str, Any]:
    """Return prompts, truncation and normalisation. Passages have the first of the prompts that are named for them and not empty."""
    config = source.json(SETTINGS)
    similarity, prompts = config.get("similarity_fn_name") or "cosine", config.get("prompts") or {}
    if similarity not in ("cosine", "dot") and not is_normalized:
        raise InputError(f"{source.name} is for comparing vectors by '{similarity}': only cosine and dot are supported")
    default = default_prompt(config) or ""
    of_passages = [prompts[name] for name in ("document", "passage", "corpus") if name in prompts]
    return {
        "query_prompt": prompts.get("query", default) or "",
        "passage_prompt": next(filter(None, of_passages), "" if of_passages else default),
        "truncate_dim": config.get("truncate_dim"),
        "normalize": is_normalized or similarity == "cosine",
    }


def _read_network(folder: Path, source: str, n_tokens: int | None, choices: RecipeOptions) -> dict[str, Any]:
    """Return the settings that follow from the network and its tokenizer; the options may shorten texts, not lengthen them."""
    config = load_config(folder, source, trusts_code=choices.trust_remote_code)
    values = config.to_dict() | {"pad_token_id": config.pad_token_id, "model_type": config.model_type}
    of_tokenizer = load_any_tokenizer(folder, source).model_max_length
    limits = [choices.max_tokens or n_tokens or (of_tokenizer if of_tokenizer < _ENDLESS else None), n_positions(values)]
    max_tokens = min(filter(None, limits), default=_DEFAULT_TOKENS)
    is_decoder = str((config.architectures or [""])[0]).endswith("ForCausalLM") and getattr(config, "is_causal", True)
    is_wide = config.model_type.startswith(_IN_BFLOAT16) or str(config.dtype).endswith("bfloat16")
    return {
        "pooling": "lasttoken" if is_decoder else "mean",
        "normalize": True,
        "truncate_dim": None,
        "max_query_tokens": max_tokens,
        "max_passage_tokens": max_tokens,
        "dim": int(config.hidden_size),
        "gpu_dtype": "bfloat16" if is_wide else "float16",
    }
