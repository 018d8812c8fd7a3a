"""GPUs by name, with the figures of their makers' data sheets; nothing here is measured."""

from __future__ import annotations

import re
from typing import NamedTuple

from wikidx.base.errors import InputError
from wikidx.base.registry import unknown_name_error


class CardType(NamedTuple):
    """A type of GPU.

    Attributes:
        memory_bytes: memory.
        bytes_per_s: bandwidth of the memory.
        flops: operations per second of dense float16 products with tensor cores, with float32 sums where the maker tells these apart.
        searches: whether exact search runs on it: on AMD's, torch lacks a product.
    """

    memory_bytes: float
    bytes_per_s: float
    flops: float
    searches: bool = True


def _card(memory_gb: float, gb_per_s: float, tflops: float, *, searches: bool = True) -> CardType:
    return CardType(memory_gb * 1e9, gb_per_s * 1e9, tflops * 1e12, searches)


# NVIDIA's data sheets: A100 (2021), H100 and H200 Tensor Core GPU (2024), HGX B200 (2025, an eighth), L4, L40S (2023), A10 (2021),
# T4 (2019), V100 (2020); white papers "Ada GPU architecture" and "Ampere GA102" for the RTX cards. AMD's data sheet: Instinct MI300X
# (2023). Rates with sparsity are halved.
CARDS = {
    "A100-40": _card(40, 1555, 312),
    "A100-80": _card(80, 2039, 312),
    "H100": _card(80, 3350, 989),
    "H100-PCIe": _card(80, 2000, 756),
    "H200": _card(141, 4800, 989),
    "B200": _card(180, 8000, 2250),
    "L4": _card(24, 300, 121),
    "L40S": _card(48, 864, 362),
    "A10": _card(24, 600, 125),
    "RTX4090": _card(24, 1008, 165),
    "RTX3090": _card(24, 936, 71),
    "T4": _card(16, 320, 65),
    "V100": _card(32, 900, 125),
    "MI300X": _card(192, 5300, 1307, searches=False),
}


def parse_cards(text: str) -> tuple[int, str]:
    """Return the number and the name of GPUs written as "2xH100" or "H100"; upper and lower case are the same.

    Raises:
        InputError, UnknownNameError: the number is 0, or no GPU has this name.
    """
    match = re.fullmatch(r"(?:(\d{1,3})[x×])?(.+)", text.strip(), re.IGNORECASE)
    number, name = (match[1] or "1", match[2]) if match else ("1", text)
    known = next((card for card in CARDS if card.lower() == name.replace(" ", "").lower()), None)
    if known is None:
        raise unknown_name_error("GPU", name, CARDS)
    if not int(number):
        raise InputError(f"--gpus {text}: name at least one GPU, such as 1xH100")
    return int(number), known
