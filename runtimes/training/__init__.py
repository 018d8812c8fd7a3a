"""Training data built as in the papers, for external trainers: JSON Lines in chat format, and a manifest.

base             the type of a builder
sets             sets of questions, and draws from them
leaks            evaluation questions among training questions
recipes          the papers' learning rates, epochs and batch sizes
pipeline         all steps, the files and the manifest
ra_isf           builder for RA-ISF's three sub-models
self_reasoning/  builder for Self-Reasoning's stages and ablations

RECIPE.md shows how to train on the files with TRL.
"""

from typing import Any

from wikidx.base.registry import load

BUILDERS = {
    "ra_isf": "wikidx.runtimes.training.ra_isf:BUILDER",
    "self_reasoning": "wikidx.runtimes.training.self_reasoning:BUILDER",
}


def find_builder(name: str) -> Any:  # noqa: ANN401 - a Builder; the import would slow down the command line
    """Return the ``Builder`` of a method's training data.

    Raises:
        UnknownNameError: there is no builder of this name.
    """
    return load("method with training data", name, BUILDERS)
