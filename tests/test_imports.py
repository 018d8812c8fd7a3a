"""Every module can be imported, with whatever extras are installed."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.util import find_spec

import pytest

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


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_imported_or_lacks_an_extra(module: str) -> None:
    missing: BaseException | None = None
    try:
        importlib.import_module(module)
    except MissingExtraError as error:
        missing = error.__cause__
    except ModuleNotFoundError as error:
        missing = error
    assert missing is None or (isinstance(missing, ModuleNotFoundError) and missing.name in OF_EXTRAS and find_spec(missing.name) is None)
