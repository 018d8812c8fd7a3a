"""Training data made as in the papers, for external trainers: chat-format JSON Lines and a manifest.

base        the type of a builder          sets        sets of questions, and drawing from them
leaks       evaluation questions among     recipes     the papers' learning rates, epochs, batches
            training questions             running     the whole pipeline, files, manifest

ra_isf           the sets of RA-ISF's three sub-models
self_reasoning/  a teacher's trajectories, their quality control, stages and ablations

RECIPE.md trains on the files with TRL.
"""

from typing import Any

from wikidx.corpora.registry import load

BUILDERS = {
    "ra_isf": "wikidx.runtimes.training.ra_isf:BUILDER",
    "self_reasoning": "wikidx.runtimes.training.self_reasoning:BUILDER",
}


def find_builder(name: str) -> Any:  # noqa: ANN401 - a Builder; the import would load what the command line does not need
    """Return the ``Builder`` of a method's training data.

    Raises:
        UnknownNameError: there is none.
    """
    return load("method with training data", name, BUILDERS)
