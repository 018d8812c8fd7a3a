from __future__ import annotations

import sys
from importlib import import_module

import pytest

from wikidx.base.errors import MissingExtraError

ADAPTERS = {
    "dspy": "dspy",
    "haystack": "haystack",
    "langchain": "langchain_core",
    "llama_index": "llama_index.core",
    "pyterrier": "pyterrier",
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_without_its_package_an_adapter_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for module in sys.modules if module.partition(".")[0] == ADAPTERS[name].partition(".")[0]]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, ADAPTERS[name], None)
    monkeypatch.setitem(sys.modules, ADAPTERS[name].partition(".")[0], None)
    monkeypatch.delitem(sys.modules, f"wikidx.retrievers.adapters.{name}", raising=False)
    with pytest.raises(MissingExtraError, match=f"needs the extra '{name.replace('_', '-')}': pip install"):
        import_module(f"wikidx.retrievers.adapters.{name}")
