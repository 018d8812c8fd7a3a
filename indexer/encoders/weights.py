"""A checkpoint's weights -> a network's parameters, held to the network name by name and size by size."""

from __future__ import annotations

import pickle
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from corpora.durable import file_sha256
from corpora.errors import ArtifactDamaged, ArtifactMismatch

from .bert import UNUSED as UNUSED_BY_BERT
from .bert import Bert
from .checkpoints import PROJECTION, PROJECTION_CONFIG, WEIGHTS, present
from .config import BertConfig, read_config, read_object
from .failures import first_line
from .spec import EncoderSpec, Side
from .t5 import T5
from .t5 import UNUSED as UNUSED_BY_T5

Tensors = Mapping[str, torch.Tensor]

_MAX_NAMED = 3
_NUMBERS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_SUFFIXES = (".safetensors", ".bin")
_FOREIGN = (  # what torch's reader raises for bytes that are no checkpoint: it works through them as instructions
    ValueError,
    RuntimeError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    MemoryError,
    struct.error,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
)


def load_network(spec: EncoderSpec, side: Side) -> Bert | T5:
    """Return the network of one side of an encoder with its weights, on the CPU, in the type that they are stored in.

    Raises:
        ArtifactMismatch: the checkpoint is of another architecture, or has other weights than its network, or than the encoder's.
        ArtifactDamaged: its files cannot be read.
        InputError, DownloadError, MissingExtraError: see ``checkpoints.located``.
    """
    folder = spec.folder(side)
    config = read_config(folder, spec)
    path = present(folder, WEIGHTS) or folder / WEIGHTS[0]
    if spec.weights_sha256 is not None and (found := file_sha256(path)) != spec.weights_sha256:
        raise ArtifactMismatch(f"{path} is not the checkpoint of '{spec.name}': sha256 {found}, expected {spec.weights_sha256}")
    with torch.device("meta"):  # without storage: the parameters become the tensors of the checkpoint
        network = Bert(config) if isinstance(config, BertConfig) else T5(config)
    unused = UNUSED_BY_BERT if isinstance(config, BertConfig) else UNUSED_BY_T5
    stored = _renamed(_read(path), spec.prefix(side))
    _assign(network, network.sources(config.n_layers), {name: stored[name] for name in stored if not re.fullmatch(unused, name)}, path)
    return network


def load_projection(spec: EncoderSpec, side: Side) -> torch.Tensor | None:
    """Return the matrix that pooled vectors go through, (dim, hidden), float32; None if the encoder has none. Raises as above."""
    if not spec.has_projection:
        return None
    folder = spec.folder(side)
    activation = read_object(folder / PROJECTION_CONFIG).get("activation_function", "none")
    if not str(activation).endswith(".Identity"):
        raise ArtifactMismatch(f"{folder / PROJECTION_CONFIG} has the activation function {activation}, but '{spec.name}' has none")
    path = present(folder, PROJECTION) or folder / PROJECTION[0]
    stored = _read(path)
    if stored.keys() != {"linear.weight"}:
        raise ArtifactMismatch(
            f"{path} holds {', '.join(sorted(stored))} instead of linear.weight: '{spec.name}' has a matrix there, no more"
        )
    matrix, hidden = stored["linear.weight"], read_config(folder, spec).hidden
    _check_numbers(path, "linear.weight", matrix)
    if matrix.ndim != 2 or matrix.shape[1] != hidden:
        raise ArtifactMismatch(
            f"{path} holds a matrix of shape {tuple(matrix.shape)}, but its network gives vectors of {hidden} components"
        )
    return matrix.float()


def _assign(network: Bert | T5, sources: Mapping[str, tuple[str, ...]], stored: Tensors, path: Path) -> None:
    """Make the tensors of a checkpoint the parameters of a network; ``sources`` says which, one below the other."""
    wanted = {name for names in sources.values() for name in names}
    if stored.keys() != wanted:
        missing, unknown = sorted(wanted - stored.keys()), sorted(stored.keys() - wanted)
        raise ArtifactMismatch(
            f"{path} does not hold the weights of its config.json: {_named('missing', missing)}, {_named('unknown', unknown)}"
        )
    state = {}
    for name, parameter in network.state_dict().items():
        parts = [stored[source] for source in sources[name]]
        for source, part in zip(sources[name], parts, strict=True):
            _check_numbers(path, source, part)
        shape = (sum(part.shape[0] for part in parts if part.ndim), *parts[0].shape[1:])
        if shape != parameter.shape or any(part.shape[1:] != parts[0].shape[1:] for part in parts):
            sizes = f"{' + '.join(str(tuple(part.shape)) for part in parts)}, not {tuple(parameter.shape)}"
            raise ArtifactMismatch(f"{path} does not hold the weights of its config.json: {' + '.join(sources[name])} is {sizes}")
        state[name] = torch.cat(parts) if len(parts) > 1 else parts[0]
    network.load_state_dict(state, assign=True)


def _named(what: str, names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{what} {', '.join(names[:_MAX_NAMED]) or 'none'}{more}"


def _renamed(stored: Tensors, prefix: str) -> Tensors:
    """Return the tensors by their names in the network."""
    if not prefix and any(name.startswith("bert.") for name in stored):
        prefix = "bert."  # saved together with a head
    return {name.removeprefix(prefix): tensor for name, tensor in stored.items()}


def _check_numbers(path: Path, name: str, tensor: torch.Tensor) -> None:
    """Raise ``ArtifactMismatch`` unless a tensor holds plain numbers that can be computed with as they are."""
    if tensor.dtype not in _NUMBERS or tensor.layout != torch.strided or tensor.device.type != "cpu":
        kind = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}".replace("torch.", "")
        raise ArtifactMismatch(f"{path} holds {name} as {kind}: plain float16, bfloat16, float32 or float64 is wanted, nothing quantised")


def _read(path: Path) -> Tensors:
    """Return the tensors of a file, or of those that an index lists."""
    if path.suffix != ".json":
        return _read_one(path)
    listed = read_object(path).get("weight_map")
    files = set(listed.values()) if isinstance(listed, dict) and all(isinstance(file, str) for file in listed.values()) else set()
    if not files or any(Path(file).name != file or not file.endswith(_SUFFIXES) for file in files):
        raise ArtifactDamaged(f"{path} cannot be read (it lists no files with weights beside it): get the checkpoint again")
    return {name: tensor for file in sorted(files) for name, tensor in _read_one(path.parent / file).items()}


def _read_one(path: Path) -> Tensors:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        # Nothing but tensors is unpickled; the format of before 2020 is no archive and cannot be mapped.
        stored = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (OSError, SafetensorError) as error:
        raise ArtifactDamaged(f"{path} cannot be read ({first_line(error)}): get the checkpoint again") from error
    except _FOREIGN as error:  # torch's own message advises to run what the file asks for
        raise ArtifactDamaged(
            f"{path} cannot be read (it is damaged, or holds more than tensors; nothing of it was run): get the checkpoint again"
        ) from error
    if not isinstance(stored, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in stored.values()):
        raise ArtifactDamaged(f"{path} cannot be read (it holds something else than tensors by name): get the checkpoint again")
    return {str(name): tensor for name, tensor in stored.items()}
