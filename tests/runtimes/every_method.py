"""Options for tests of all methods: short limits, for models that never stop by themselves."""

from __future__ import annotations

from wikidx.runtimes.methods import find_method

_FEW = {"k": 2, "shots": 0, "samples": 2, "max_rounds": 2, "rounds": 2, "max_sentences": 3, "max_steps": 3, "max_sub_questions": 2}


def short_options(name: str, n_tokens: int = 8) -> dict[str, int]:
    """Return a method's options with few passages, rounds and tokens."""
    fields = find_method(name).options.__dataclass_fields__
    bounds = [field for field in fields if field.endswith("_tokens") and field != "max_query_tokens"]
    return {**dict.fromkeys(bounds, n_tokens), **{field: value for field, value in _FEW.items() if field in fields}}
