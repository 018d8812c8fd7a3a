"""Every module can be imported, with whatever extras are installed."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.util import find_spec

import wikidx
from wikidx.base.errors import MissingExtraError

MODULES = [module.name for module in pkgutil.walk_packages(wikidx.__path__, "wikidx.")]
OF_EXTRAS = {
    "dspy",
    "haystack",
    "langchain_core",
    "llama_index",
    "matplotlib",
    "mcp",
    "pandas",
    "pyterrier",
    "ray",
    "regex",
    "torch",
    "triton",
}


def missing_package(module: str) -> str | None:
    """Import a module, and return the package that it lacks."""
    lacks: BaseException | None = None
    try:
        importlib.import_module(module)
    except MissingExtraError as error:
        lacks = error.__cause__
    except ModuleNotFoundError as error:
        lacks = error
    assert lacks is None or isinstance(lacks, ModuleNotFoundError), module
    return None if lacks is None else lacks.name


def test_every_module_is_imported_or_lacks_an_extra() -> None:
    missing = {module: name for module in MODULES if (name := missing_package(module))}
    assert {module: name for module, name in missing.items() if name not in OF_EXTRAS or find_spec(name)} == {}
