"""Self-Reasoning's training data: a teacher's trajectories, filtered and split into stages; the ablations; the plain baseline.

options  the options          teacher  requests to the teacher                   tasks   short answers, long answers, claims
samples  the teacher's output quality  Algorithm 1                               targets stages and prompts
files    all files, built from the samples
"""

from wikidx.runtimes.training.base import Builder

from .files import DESCRIPTIONS, build, check, find_citation_scorer
from .options import BuildOptions, CollectOptions
from .teacher import draw, make_method

BUILDER = Builder(
    name="self_reasoning",
    summary="a teacher's trajectories after quality control, in three stages; w/o GL, w/o QC and LLaMA2-FT",
    source="Xia et al. 2024, arXiv 2407.19813, sections on data generation, quality control and training, and Algorithm 1",
    collect_options=CollectOptions,
    build_options=BuildOptions,
    draw=draw,
    method=make_method,
    build=build,
    descriptions=DESCRIPTIONS,
    check=check,
    citation_scorer=find_citation_scorer,
)

__all__ = ["BUILDER", "BuildOptions", "CollectOptions"]
