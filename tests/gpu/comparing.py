"""Sizes for a device, and the differences that are larger than allowed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TypeVar

from wikidx.runtimes.cli.check_gpu import Difference

Size = TypeVar("Size")

SMALL = {"hidden": 64, "layers": 2, "heads": 4}
BASE = {"hidden": 768, "layers": 12, "heads": 12}  # bert-base
MINILM = {"hidden": 384, "layers": 6, "heads": 12}  # MiniLM's cross-encoder


def sized(device: str, on_gpu: Size, on_cpu: Size) -> Size:
    return on_gpu if device.startswith("cuda") else on_cpu


def failed(differences: Iterable[Difference]) -> list[Difference]:
    """Return those larger than allowed; all are shown by ``--log-cli-level=info``."""
    found = list(differences)
    for case, difference, allowed in found:
        logging.getLogger(__name__).info("%s: %.2g of %g", case, difference, allowed)
    assert found
    return [difference for difference in found if not difference.passed]
