"""Load a checkpoint's network with transformers: from local files only, silently, and with complete weights or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wikidx.corpora.errors import ArtifactDamaged, ArtifactMismatch
from wikidx.indexer.machine.failures import first_line
from wikidx.indexer.machine.threads import limit_forked

from .checkpoints import CONFIG, WEIGHTS, present

_MAX_NAMED = 3
_UNUSED = {"pooler", "position_ids"}  # BERT's next-sentence head, and a buffer that older libraries stored
_POSITIONS_BEHIND_PADDING = ("roberta", "camembert", "longformer", "mpnet")  # the first positions are never used


def load_network(model_class: str, folder: Path, name: str, dtype: str) -> Any:  # noqa: ANN401 - transformers has no types
    """Return a checkpoint's network on the CPU, ready for inference.

    Args:
        model_class: the class of transformers that loads it.
        folder: folder of its files; no code in them is run.
        name: the encoder or reranker, for messages.
        dtype: torch's name of the precision of the computation.

    Raises:
        ArtifactMismatch: its weights do not match the network of its configuration, or are quantised.
        ArtifactDamaged: its files cannot be read.
    """
    import torch
    import transformers

    limit_forked(torch.set_num_threads)
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with silent_transformers():
        with _reading(folder / CONFIG, name):
            config = transformers.AutoConfig.from_pretrained(folder, **local)
        if getattr(config, "quantization_config", None):
            raise ArtifactMismatch(f"{folder / CONFIG} describes quantised weights: '{name}' needs plain ones")
        path = present(folder, WEIGHTS) or folder / WEIGHTS[0]
        with _reading(path, name):
            network, report = getattr(transformers, model_class).from_pretrained(
                folder, config=config, dtype=dtype, ignore_mismatched_sizes=True, output_loading_info=True, **local
            )
    check_weights(network, report, str(path))
    return network.eval()


def without_heads(network: Any, folder: Path) -> Any:  # noqa: ANN401 - transformers has no types
    """Return the part of a network that computes hidden states.

    Raises:
        ArtifactMismatch: the checkpoint has further weights after it that the network's vectors pass through.
    """
    base = network
    while base.base_model is not base:
        base = base.base_model
    n_heads = sum(1 for _ in network.parameters()) - sum(1 for _ in base.parameters())
    if n_heads:
        raise ArtifactMismatch(f"{folder / CONFIG} describes a projection behind the hidden states, which is not computed here")
    if getattr(base, "pooler", None) is not None:
        base.pooler = None
    return base


def n_positions(config: Mapping[str, Any]) -> int | None:
    """Return the maximum number of tokens in a network's configuration; None: unspecified or unlimited."""
    most, padding = config.get("max_position_embeddings"), config.get("pad_token_id")
    if not isinstance(most, int) or most < 1:
        return None
    is_behind = any(name in str(config.get("model_type")) for name in _POSITIONS_BEHIND_PADDING)
    return most - (padding + 1 if is_behind and isinstance(padding, int) else 0)


@contextlib.contextmanager
def silent_transformers() -> Iterator[None]:
    """Keep transformers from printing while it loads."""
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
def _reading(path: Path, name: str) -> Iterator[None]:
    """Translate transformers' exceptions for an unreadable file, which are of any class."""
    try:
        yield
    except Exception as error:
        reason = first_line(error)
        if path.suffix == ".bin" and not isinstance(error, OSError):  # torch's own message advises to allow running code in the file
            reason = "it is damaged, or holds more than tensors; nothing of it was run"
        raise ArtifactDamaged(f"{path} cannot be read ({reason}): get the checkpoint of '{name}' again") from error


def check_weights(network: Any, report: Mapping[str, Any], path: str) -> None:  # noqa: ANN401 - transformers has no types
    """Raise ``ArtifactMismatch`` unless a checkpoint has all weights of a network, with matching shapes, and no others within it.

    Args:
        network: as loaded by ``from_pretrained``; missing weights are random.
        report: the result of ``output_loading_info``.
        path: of the weights, for the message.
    """
    modules, is_bare = {name for name, _ in network.named_children()}, network.base_model is network
    missing = [name for name in report["missing_keys"] if not (is_bare and _UNUSED & {*name.split(".")})]
    # Weights outside of the modules are a head of another task.
    unknown = [name for name in report["unexpected_keys"] if name.split(".")[0] in modules and not _UNUSED & {*name.split(".")}]
    resized = [f"{name} is {tuple(found)}, not {tuple(wanted)}" for name, found, wanted in sorted(report["mismatched_keys"])]
    if missing or unknown or resized:
        reason = resized[0] if resized else f"{_named('missing', missing)}, {_named('unknown', unknown)}"
        raise ArtifactMismatch(f"{path} does not hold the weights of its config.json: {reason}")


def _named(what: str, names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - _MAX_NAMED} more" if len(listed) > _MAX_NAMED else ""
    return f"{what} {', '.join(listed[:_MAX_NAMED]) or 'none'}{more}"
