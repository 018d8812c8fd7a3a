"""A file per module, rewritten by every example."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "made"
