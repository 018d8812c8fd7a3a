"""``idx doctor``: the facts that a bug report needs: versions, devices, free memory and disk, folders, optional packages.

Examples:
    idx doctor
    idx doctor --json
    idx doctor --compile
"""

from __future__ import annotations

import itertools
import os
import platform
import re
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated

import typer

from wikidx.base.progress import format_bytes

from .option_groups import command
from .screen import Result

_WIDTH = 20
_VARIABLES = (
    "IDX_HOME",
    "IDX_MIRROR",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "IDX_CACHE",
    "NUMBA_CACHE_DIR",
    "HF_HOME",
)  # none has a secret
_REQUIREMENT = re.compile(r"(?P<package>[\w.-]+)[^;]*(;.*extra == ['\"](?P<extra>[\w-]+)['\"])?")
_DEVELOPERS_EXTRAS = {"bench", "dev", "docs", "test-full"}

Section = dict[str, str]


@command()
def doctor(
    *,
    compile_kernels: Annotated[
        bool, typer.Option("--compile", help="First compile the inner loops, which are kept for all commands.")
    ] = False,
) -> Result:
    """Describe this installation and machine, for bug reports.

    The report has paths, sizes and versions; keys and texts are not in it.
    """
    if compile_kernels:
        from wikidx.retrievers import compiling

        compiling.compile_kernels("bm25", "exact")
    packages, extras = _describe_packages()
    report = {
        "idx": _describe_program(),
        "machine": _describe_machine(),
        "folders": _describe_folders(),
        "packages": packages,
        "extras": extras,
        "embedded models": _describe_models(),
    }
    shown = ([title, *(f"    {label:<{_WIDTH}}{value}" for label, value in section.items())] for title, section in report.items())
    return Result(report, itertools.chain.from_iterable(shown))


def _describe_program() -> Section:
    return {
        "version": f"{_version('wikidx') or 'not installed'}, in {Path(__file__).parents[2]}",
        "python": f"{platform.python_version()}, {sys.executable}",
        **{name: value for name in _VARIABLES if (value := os.environ.get(name))},
    }


def _describe_machine() -> Section:
    from wikidx.base.machine.memory import available_bytes, memory_bytes
    from wikidx.base.machine.threads import n_threads

    return {
        "system": f"{platform.platform()}, {platform.machine()}",
        "processors": f"{n_threads()} of {os.cpu_count()} are for this process",
        "memory": f"{format_bytes(available_bytes())} free of {format_bytes(memory_bytes())}",
        "GPU": _describe_gpus(),
    }


def _describe_gpus() -> str:
    from wikidx.base.machine.devices import free_memory, has_gpu_driver
    from wikidx.base.machine.failures import first_line

    try:
        import torch

        numbers = range(torch.cuda.device_count())
        gpus = [
            f"cuda:{n} {torch.cuda.get_device_name(n)}, {format_bytes(free_memory(n, is_named=False))} free, CUDA {torch.version.cuda}"
            for n in numbers
        ]
        none = f"none that torch can use{' with this driver: CUDA 13 needs 580 or later' * has_gpu_driver()}"
        return "; ".join([*gpus, *["mps"] * torch.backends.mps.is_available()]) or none
    except ModuleNotFoundError:
        return "not looked for: torch is not installed"
    except Exception as error:  # a broken torch or driver is what a report is about
        return f"torch fails: {first_line(error)}"


def _describe_folders() -> Section:
    from wikidx.base.artifacts.home import corpus_names, free_disk_bytes, home, network_file_system
    from wikidx.base.compiled import cache_folders, kernels_folder

    folder = home()
    state = "does not exist yet" if not folder.exists() else "writable" if os.access(folder, os.W_OK) else "not writable"
    network = network_file_system(folder)
    kernels, where = cache_folders(), kernels_folder()
    return {
        "home": f"{folder}, {state}{f', on {network}' if network else ''}, {format_bytes(free_disk_bytes())} free",
        "corpora": ", ".join(corpus_names()) or "none",
        **{name: _size([folder / name]) for name in ("downloads", "checkpoints")},
        "Hugging Face cache": _describe_hub_cache(),
        "compiled kernels": f"{_size(kernels) if kernels else 'none'}, {f'in {where}' if where else 'next to the code'}",
    }


def _describe_models() -> Section:
    """Return the embedded language models, and whether they are installed and converted."""
    from wikidx.base.artifacts.home import home
    from wikidx.base.errors import IdxError
    from wikidx.runtimes.llms.embedded import EMBEDDED, embedded_file
    from wikidx.runtimes.llms.gguf_files import conversion_folder

    described = {}
    for name, model in EMBEDDED.items():
        try:
            file = embedded_file(name)
            is_converted = home().is_dir() and conversion_folder(file).is_dir()  # a home is not created
            state = f"converted, {_size([conversion_folder(file)])}" if is_converted else "to be converted on first use"
            described[name] = f"{model.title}, {model.requirement.partition('=')[0]} {_version(model.package)}, {state}"
        except IdxError as error:
            described[name] = f"{model.title}: {error}"
    return described


def _describe_hub_cache() -> str:
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        return "none: huggingface_hub is not installed"
    return f"{_size([Path(HF_HUB_CACHE)])}, in {HF_HUB_CACHE}"


def _size(folders: Iterable[Path]) -> str:
    """Return the total size of the files in folders, which need not exist."""
    files = (file for folder in folders for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    return format_bytes(sum(file.stat().st_size for file in files))


def _describe_packages() -> tuple[Section, Section]:
    """Return the versions of the core's packages, and those of each extra, with the missing ones."""
    from wikidx.base.errors import install_argument

    packages: dict[str | None, list[str]] = {}
    for extra, package in _requirements():
        packages.setdefault(extra, []).append(package)
    core = {package: _version(package) or "missing" for package in packages.pop(None, [])}
    extras = {}
    for extra, needed in packages.items():
        missing = [package for package in needed if _version(package) is None]
        found = ", ".join(f"{package} {_version(package)}" for package in needed if package not in missing)
        advice = f"missing: {', '.join(missing)} (pip install {install_argument(str(extra))})" if missing else ""
        extras[str(extra)] = "; ".join(filter(None, (found, advice)))
    return core, extras


def _requirements() -> list[tuple[str | None, str]]:
    """Return extra and package of each requirement of users; None is the core."""
    try:
        found = [match for text in requires("wikidx") or () if (match := _REQUIREMENT.match(text))]
    except PackageNotFoundError:  # importable, but not installed
        found = []
    return [(match["extra"], match["package"]) for match in found if match["extra"] not in _DEVELOPERS_EXTRAS]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
