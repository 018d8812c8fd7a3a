"""The recipe's program, as far as it runs without a trainer."""

from __future__ import annotations

import ast
import math
import re

import pytest

from tests.conftest import ROOT
from wikidx.runtimes.training import BUILDERS, recipes

RECIPE = (ROOT / "runtimes" / "training" / "RECIPE.md").read_text(encoding="utf-8")
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```", RECIPE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("n_examples", "expected"), [(2_000, 6), (33, 1), (1, 1)])
def test_warm_up_is_a_whole_number_of_steps(n_examples: int, expected: int) -> None:
    """0.03 of 3 epochs of 63, 2 and 1 batches of 32: versions of transformers read a share differently, and a number alike."""
    how = recipes.recipe_json(recipes.recipes_of("ra_isf")["know"])
    parse_assignments = {
        one.targets[0].id: one.value
        for one in ast.walk(ast.parse(PROGRAM))
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)
    }
    options = parse_assignments["options"]
    assert isinstance(options, ast.Call)
    (warm_up,) = [one.value for one in options.keywords if one.arg == "warmup_steps"]
    names = {"how": how, "data": range(n_examples), "math": math}
    names["steps"] = eval(compile(ast.Expression(parse_assignments["steps"]), "steps", "eval"), names)
    found = eval(compile(ast.Expression(warm_up), "warm_up", "eval"), names)
    assert (found, type(found)) == (expected, int)


def test_every_figure_that_it_reads_is_in_the_manifest() -> None:
    read = set(re.findall(r'how\["(\w+)"\]', PROGRAM))
    assert {"learning_rate", "epochs", "batch", "warmup_ratio"} <= read
    for method in BUILDERS:
        for recipe in recipes.recipes_of(method).values():
            assert read <= set(recipes.recipe_json(recipe))
