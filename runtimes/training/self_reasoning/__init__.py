"""Self-Reasoning's training data, built from a teacher's trajectories: the stages, the ablations and the baseline.

teacher  options, the three tasks (short answers, long answers, claims), and requests to the teacher
samples  reading of the teacher's output, and quality control, Algorithm 1 of the paper
files    prompts and targets of each stage, and construction of all files from the samples
"""

from wikidx.runtimes.training.base import Builder

from .files import DESCRIPTIONS, build, check, find_citation_scorer
from .teacher import BuildOptions, CollectOptions, draw, make_method

BUILDER = Builder(
    name="self_reasoning",
    summary="a teacher's trajectories after quality control, in three stages; also w/o GL, w/o QC, and LLaMA2-FT",
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
