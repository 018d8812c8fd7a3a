"""Layers over the vectors of a network, as sentence-transformers' ``Dense`` stores them in folders of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wikidx.base.errors import ArtifactMismatch

from .checkpoints import CONFIG, DENSE_WEIGHTS, find_file, read_errors, read_json_object

if TYPE_CHECKING:
    import torch


def load_dense(folders: Sequence[Path], n_inputs: int, name: str, *, of_tokens: bool = False) -> tuple[torch.nn.ModuleList, int]:
    """Return the layers of some folders for ``apply_dense``, and the number of components after the last one.

    Args:
        folders: a folder for each layer: linear, with an activation, and perhaps a residual.
        n_inputs: components before the first layer.
        name: the encoder or reranker, for messages.
        of_tokens: whether the layers are PyLate's, which apply to the vector of each token, by default without an activation.

    Raises:
        ArtifactMismatch: the weights do not fit, or a layer has another form.
        ArtifactCorrupt: the files cannot be read.
    """
    import torch

    layers = torch.nn.ModuleList()
    for folder in folders:
        layer, n_inputs = _load_layer(folder, n_inputs, name, of_tokens=of_tokens)
        layers.append(layer)
    return layers, n_inputs


def apply_dense(layers: torch.nn.ModuleList, vectors: torch.Tensor) -> torch.Tensor:
    """Return vectors, (…, components), after all layers."""
    layer: Any  # a ``ModuleDict``
    for layer in layers:
        projected = layer["activation"](layer["linear"](vectors))
        vectors = projected + layer["residual"](vectors) if "residual" in layer else projected
    return vectors


def load_activation(path: object, file: Path) -> torch.nn.Module:
    """Return a function of torch.nn by the import path that sentence-transformers stores in a file.

    Raises:
        ArtifactMismatch: it is none of torch's activation functions, and would have to be imported.
    """
    import torch

    module, _, name = str(path).rpartition(".")
    try:
        if not f"{module}.".startswith("torch.nn.") or name not in {"Identity", *torch.nn.modules.activation.__all__}:
            raise TypeError("it is no activation function")
        activation: torch.nn.Module = getattr(torch.nn, name)()
    except TypeError as error:  # also if it needs arguments
        raise ArtifactMismatch(
            f"{file} has the activation function {path!s:.80}: only those of torch.nn that need no arguments are supported"
        ) from error
    return activation


def _load_layer(folder: Path, n_inputs: int, name: str, *, of_tokens: bool) -> tuple[torch.nn.ModuleDict, int]:
    """Return a layer, and the number of its outputs."""
    import torch
    from safetensors.torch import load_file

    config = read_json_object(folder / CONFIG, name)
    default = "torch.nn.Identity" if of_tokens else "torch.nn.Tanh"
    layer = torch.nn.ModuleDict({"activation": load_activation(config.get("activation_function", default), folder / CONFIG)})
    pooled = "sentence_embedding"  # sentence-transformers' name; PyLate's layers may have it, too, and never use it
    if not of_tokens and {config.get(f"module_{end}_name") or pooled for end in ("input", "output")} != {pooled}:
        raise ArtifactMismatch(f"{folder / CONFIG} describes a layer that does not replace '{pooled}': it is not supported")
    path = find_file(folder, DENSE_WEIGHTS) or folder / DENSE_WEIGHTS[0]
    with read_errors(path, name):
        stored = load_file(path) if path.suffix == ".safetensors" else torch.load(path, map_location="cpu", weights_only=True)
        shapes = {str(name): tuple(tensor.shape) for name, tensor in stored.items() if tensor.is_floating_point()}
    n_outputs = int((shapes.get("linear.weight") or (0,))[0])
    expected = {"linear.weight": (n_outputs, n_inputs)} | ({"linear.bias": (n_outputs,)} if config.get("bias", True) else {})
    if is_projected := bool(config.get("use_residual")) and n_inputs != n_outputs:
        expected["residual.weight"] = (n_outputs, n_inputs)
    if shapes != expected or len(stored) != len(shapes):
        content = ", ".join(f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in sorted(stored.items()))
        raise ArtifactMismatch(
            f"{path} holds {content} instead of {' and '.join(expected)}, plain numbers: the layers before it in '{name}' give vectors of "
            f"{n_inputs} components"
        )
    layer["linear"] = torch.nn.Linear(n_inputs, n_outputs, bias="linear.bias" in expected)
    if config.get("use_residual"):
        layer["residual"] = torch.nn.Linear(n_inputs, n_outputs, bias=False) if is_projected else torch.nn.Identity()
    layer.load_state_dict({key: tensor.float() for key, tensor in stored.items()})
    return layer, n_outputs
