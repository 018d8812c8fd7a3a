"""Load a checkpoint's network with transformers: from local files only, silently, and only with complete weights."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wikidx.base.errors import ArtifactMismatch, InputError
from wikidx.base.machine.failures import first_line
from wikidx.base.machine.threads import limit_threads_after_fork

from .checkpoints import CONFIG, WEIGHTS, find_file, read_errors

_MAX_NAMED = 3
# oneDNN, torch's matrix library on CPUs, caches a primitive of about 1 MB for each shape of a batch. Its default of up to 1,024
# primitives fills a server's memory over hours. Encoding is as fast with this small cache.
_ONEDNN_CACHE = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
_UNUSED = {"pooler", "position_ids"}  # BERT's next-sentence head, and a buffer that older libraries stored
_ENCODER_CLASSES = {  # of networks of encoder and decoder, of which AutoModel would load both
    "t5": "T5EncoderModel",
    "mt5": "MT5EncoderModel",
    "umt5": "UMT5EncoderModel",
    "longt5": "LongT5EncoderModel",
}
_RESERVED_POSITIONS = ("roberta", "camembert", "longformer", "mpnet")  # model types whose first positions are never used


def encoder_class(config: Mapping[str, Any]) -> str:
    """Return the transformers class that computes hidden states by a configuration."""
    return _ENCODER_CLASSES.get(str(config.get("model_type")), "AutoModel")


def load_network(model_class: str, folder: Path, name: str, dtype: str, *, trusts_code: bool = False) -> Any:  # noqa: ANN401 - no types
    """Return a checkpoint's network on the CPU, ready for inference.

    Args:
        model_class: transformers class that loads the network.
        folder: the checkpoint's folder.
        name: the encoder or reranker, for messages.
        dtype: torch's name for the precision of the computation.
        trusts_code: run the network's code in the folder; otherwise no code in the checkpoint's files is run.

    Raises:
        ArtifactMismatch: the weights do not match the network of the configuration, or are quantised.
        ArtifactCorrupt: the files cannot be read.
    """
    import torch
    import transformers

    os.environ.setdefault(*_ONEDNN_CACHE)  # torch reads this at its first matrix product
    limit_threads_after_fork(torch.set_num_threads)
    with silent_transformers():
        config = load_config(folder, name, trusts_code=trusts_code)
        if getattr(config, "quantization_config", None):
            raise ArtifactMismatch(f"{folder / CONFIG} describes quantised weights: '{name}' needs plain ones")
        if hasattr(config, "use_cache"):
            config.use_cache = False  # a decoder's keys and values, which would take memory
        path = find_file(folder, WEIGHTS) or folder / WEIGHTS[0]
        with read_errors(path, name):
            network, report = getattr(transformers, model_class).from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                local_files_only=True,
                trust_remote_code=trusts_code,
            )
    check_weights(network, report, str(path))
    return network.eval()


def load_config(folder: Path, name: str, *, trusts_code: bool = False) -> Any:  # noqa: ANN401 - transformers has no types
    """Return the configuration of a checkpoint's network; raises ``ArtifactCorrupt`` as ``load_network`` does."""
    import transformers

    with read_errors(folder / CONFIG, name), silent_transformers():
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trusts_code)


def strip_heads(network: Any, folder: Path) -> Any:  # noqa: ANN401 - transformers has no types
    """Return the part of a network that computes hidden states.

    Raises:
        ArtifactMismatch: the network has weights after the hidden states, such as a projection.
    """
    base = network
    while base.base_model is not base:
        base = base.base_model
    n_heads = sum(1 for _ in network.parameters()) - sum(1 for _ in base.parameters())
    if n_heads:
        raise ArtifactMismatch(f"{folder / CONFIG} describes a projection after the hidden states, which is not supported")
    if getattr(base, "pooler", None) is not None:
        base.pooler = None
    return base


def n_positions(config: Mapping[str, Any]) -> int | None:
    """Return the maximum number of tokens in a network's configuration; None: unspecified or unlimited."""
    maximum, padding = config.get("max_position_embeddings"), config.get("pad_token_id")
    if not isinstance(maximum, int) or maximum < 1:
        return None
    has_reserved = any(name in str(config.get("model_type")) for name in _RESERVED_POSITIONS)
    return maximum - (padding + 1 if has_reserved and isinstance(padding, int) else 0)


@contextlib.contextmanager
def silent_transformers() -> Iterator[None]:
    """Silence transformers during loading."""
    from transformers.utils import logging

    verbosity, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bar:
            logging.enable_progress_bar()


@contextlib.contextmanager
def opening_by_transformers(source: str, kind: str) -> Iterator[Any]:
    """Yield the module ``transformers``, silenced, to open a folder or a repository named by the user, in any form that it knows.

    Args:
        source: the folder or repository.
        kind: the kind of checkpoint, for the message of one that is not loaded.

    Raises:
        InputError: transformers cannot load it.
    """
    import transformers
    from safetensors import SafetensorError

    try:
        with silent_transformers():
            yield transformers
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        raise InputError.of(error, source, f"'{source}' is no {kind} that transformers can load: {first_line(error)}") from error


def check_weights(network: Any, report: Mapping[str, Any], path: str) -> None:  # noqa: ANN401 - transformers has no types
    """Raise ``ArtifactMismatch`` if a checkpoint lacks weights of a network, or has weights with other shapes or unknown names.

    Args:
        network: network from ``from_pretrained``, with random values for missing weights.
        report: the result of ``output_loading_info``.
        path: path of the weights, for the message.
    """
    modules, is_bare = {name for name, _ in network.named_children()}, network.base_model is network
    missing = [name for name in report["missing_keys"] if not (is_bare and _UNUSED & {*name.split(".")})]
    # Weights outside the modules belong to a head for another task, and are allowed.
    unknown = [name for name in report["unexpected_keys"] if name.split(".")[0] in modules and not _UNUSED & {*name.split(".")}]
    resized = [f"{name} is {tuple(actual)}, not {tuple(expected)}" for name, actual, expected in sorted(report["mismatched_keys"])]
    if missing or unknown or resized:
        reason = resized[0] if resized else f"{_format_list('missing', missing)}, {_format_list('unknown', unknown)}"
        raise ArtifactMismatch(f"{path} does not hold the weights of its config.json: {reason}")


def _format_list(label: str, names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - _MAX_NAMED} more" if len(listed) > _MAX_NAMED else ""
    return f"{label} {', '.join(listed[:_MAX_NAMED]) or 'none'}{more}"
