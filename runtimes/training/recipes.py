"""Training recipes of the papers: learning rates, epochs and batch sizes. ``RECIPE.md`` shows an example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Setting(NamedTuple):
    """A value and its origin: "paper", "authors' code", or "ours" if neither gives a suitable value."""

    value: Any
    origin: str


Recipe = Mapping[str, Setting]
"""``begins_from`` (a base model, or an earlier stage to continue), ``learning_rate``, ``epochs``, ``batch``, ``max_length``, …"""

_PAPER, _CODE, _OURS = "paper", "authors' code", "ours"

_SUB_MODEL: Recipe = {
    "begins_from": Setting("Llama-2-7B", _PAPER),
    "learning_rate": Setting(5e-4, _PAPER),
    "epochs": Setting(3, _CODE),
    "batch": Setting(32, _CODE),
    "schedule": Setting("cosine", _CODE),
    "warmup_ratio": Setting(0.03, _CODE),
    "max_length": Setting(1024, _OURS),
    "dtype": Setting("bfloat16", _OURS),
}
"""RA-ISF, section 4.5. The README of the authors' code has a learning rate of 2e-5 and a maximum of 512 tokens, which are too few for a
100-word passage with demonstrations."""


def _stage(learning_rate: float, begins_from: Setting, origin: str = _PAPER) -> Recipe:
    return {
        "begins_from": begins_from,
        "learning_rate": Setting(learning_rate, origin),
        "epochs": Setting(3, _PAPER),
        "batch": Setting(32, _PAPER),
        "schedule": Setting("linear", _OURS),
        "warmup_ratio": Setting(0.0, _OURS),
        "max_length": Setting(4096, _OURS),
        "dtype": Setting("float16", _PAPER),
    }


_LLAMA = Setting("LLaMA-2 7B or 13B", _PAPER)

RECIPES: dict[str, dict[str, Recipe]] = {
    "ra_isf": {"know": _SUB_MODEL, "relevance": _SUB_MODEL, "decompose": _SUB_MODEL},
    "self_reasoning": {
        "stage1_rap": _stage(5e-5, _LLAMA),
        "stage2_rap_eap": _stage(3e-5, Setting("stage1_rap", _PAPER)),
        "stage3_rap_eap_tap": _stage(1e-5, Setting("stage2_rap_eap", _PAPER)),
        "wo_gl": _stage(5e-5, _LLAMA, _OURS),
        "wo_qc_stage1_rap": _stage(5e-5, _LLAMA),
        "wo_qc_stage2_rap_eap": _stage(3e-5, Setting("wo_qc_stage1_rap", _PAPER)),
        "wo_qc_stage3_rap_eap_tap": _stage(1e-5, Setting("wo_qc_stage2_rap_eap", _PAPER)),
        "llama2_ft": _stage(5e-5, _LLAMA, _OURS),
    },
}
"""Method -> file -> recipe. Self-Reasoning's appendix does not say whether its 3 epochs are per stage or in
total; these recipes train 3 epochs per stage."""


def recipe_json(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as JSON values, with the origin of each value."""
    return {
        **{name: setting.value for name, setting in recipe.items()},
        "origins": {name: setting.origin for name, setting in recipe.items()},
    }
