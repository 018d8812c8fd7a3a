"""GGUF files as checkpoints of transformers: each file is converted once, and the data home keeps the result.

transformers can open a GGUF file itself, but dequantises it anew each time. The conversion has the weights in float32, which hold every
dequantised value exactly, and the file's tokenizer, chat template and context length.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import time
from pathlib import Path
from typing import Any

from wikidx.base.artifacts.building import ArtifactSpec, BuildResult, build_artifact, discard
from wikidx.base.artifacts.home import home
from wikidx.base.artifacts.manifest import Manifest, Recipe, read_manifest
from wikidx.base.errors import ArtifactError, InputError, LockedError, MissingExtraError
from wikidx.base.machine.failures import first_line
from wikidx.base.progress import format_bytes
from wikidx.corpora.reading.compression import refuse_pointer
from wikidx.indexer.networks.checkpoints import CONFIG, checksum
from wikidx.indexer.networks.loading import silent_transformers

from .embedded import EMBEDDED, embedded_file

logger = logging.getLogger(__name__)

_SUFFIX, _MAGIC = ".gguf", b"GGUF"
_KIND, _VERSION = "language model", 1
_PACKAGES = ("torch", "transformers", "gguf", "accelerate")
_PAUSE_S = 0.5  # between two looks at a conversion by another process


def find_gguf(model: str) -> Path | None:
    """Return the GGUF file of a model; None: the model is a folder of another format, or a repository.

    Args:
        model: an embedded model's name, a GGUF file, or a folder with one GGUF file, each other folder, or a repository.

    Raises:
        InputError: the file is missing or of another format, the folder has several, or the embedded model is not installed.
    """
    if model in EMBEDDED:
        return embedded_file(model)
    path = Path(model).expanduser()
    refuse_pointer(path)
    if path.is_dir():
        files = [] if (path / CONFIG).is_file() else sorted(path.glob(f"*{_SUFFIX}"))
        if len(files) > 1:
            raise InputError(f"{path} has {len(files)} GGUF files: name one of them, such as {files[0]}")
        return files[0] if files else None
    if path.suffix.lower() != _SUFFIX and not path.is_file():
        return None
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise InputError(f"{path} is no GGUF file: name a GGUF file, or the folder of a checkpoint")
    return path


def checkpoint_folder(model: str) -> str:
    """Return a model as transformers opens it: a folder, or a repository on the Hugging Face hub; a GGUF file is converted.

    Raises:
        InputError: see ``find_gguf`` and ``convert_gguf``.
        MissingExtraError: a package for the conversion is not installed.
        StorageError: the data home cannot keep the conversion.
    """
    file = find_gguf(model)
    return model if file is None else str(convert_gguf(file))


def conversion_folder(file: Path) -> Path:
    """Return the folder of a GGUF file's conversion, existing or not. Equal files share it."""
    return home() / "checkpoints" / "gguf" / checksum(file)[:32]


def convert_gguf(file: Path) -> Path:
    """Return the folder of a GGUF file's conversion, which is made on the first call. If another process makes it, wait for that.

    Raises:
        InputError: the file is corrupt, or transformers cannot convert its architecture.
        MissingExtraError: a package for the conversion is not installed.
        StorageError: the data home cannot keep the conversion.
    """
    sha256, folder = checksum(file), conversion_folder(file)

    def find() -> Manifest | None:
        try:
            return read_manifest(folder, _KIND, _VERSION, "")
        except ArtifactError:  # missing, or damaged: the conversion is made again
            return None

    def write_or_discard(staging: Path) -> BuildResult:
        try:
            return BuildResult(sha256, {"parameters": _write(file, staging)})
        except InputError:  # ``build_artifact`` deletes
            raise
        except BaseException:
            discard(staging)  # nothing can be resumed
            raise

    recipe = Recipe(kind=_KIND, format_version=_VERSION, parameters={}, inputs={"gguf": sha256})
    spec = ArtifactSpec(recipe=recipe, sources={"gguf": str(file)}, find_existing=find, write=write_or_discard, packages=_PACKAGES)
    is_waiting = False
    while find() is None:
        try:
            build_artifact(folder, spec)
        except LockedError:
            if not is_waiting:
                logger.warning("waiting for another process that converts %s", file.name)
            is_waiting = True
            time.sleep(_PAUSE_S)
    return folder


def _write(file: Path, staging: Path) -> int:
    """Write a conversion, and return the number of parameters."""
    size = format_bytes(file.stat().st_size)
    logger.warning("converting %s (%s) for transformers, once: this takes half a minute, or minutes for a large file", file.name, size)
    tokenizer, model = _read(file)
    try:
        with silent_transformers():
            model.save_pretrained(staging)
            tokenizer.save_pretrained(staging)
    except UnicodeEncodeError as error:
        raise InputError(f"{staging} is not in the locale's characters, so that no tokenizer is written: set LC_ALL=C.UTF-8") from error
    for weights in staging.glob("*.safetensors"):  # written for the owner alone
        weights.chmod((staging / CONFIG).stat().st_mode)
    return int(model.num_parameters())


def _read(file: Path) -> tuple[Any, Any]:
    """Return a GGUF file's tokenizer and its model in float32."""
    if not all(map(importlib.util.find_spec, _PACKAGES)):
        raise MissingExtraError(f"the model {file}", "llm")
    import transformers

    local: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    config = getattr(transformers, "GgufConfig", None)  # older versions always dequantise
    options = {} if config is None else {"quantization_config": config(dequantize=True)}
    try:
        with silent_transformers(), contextlib.redirect_stderr(io.StringIO()):  # the conversion's own progress bar
            tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **local)
            model, report = transformers.AutoModelForCausalLM.from_pretrained(
                file.parent, dtype="float32", output_loading_info=True, **local, **options
            )
        if missing := sorted(report["missing_keys"]):
            raise ValueError(f"it lacks weights, such as {missing[0]}")
    except Exception as error:  # of any kind, for a corrupt file
        raise InputError(f"transformers cannot convert {file}: {first_line(error)}") from error
    return tokenizer, model
