"""The training data of Self-Reasoning: trajectories that a teacher writes, filtered, in stages; its ablations; the plain baseline.

options  the options          asking   requests to the teacher                   tasks   short answers, long ones, claims
samples  the teacher's output quality  Algorithm 1                               targets stages and prompts
files    all files from the samples
"""

from wikidx.runtimes.training.base import Builder

from .asking import draw, method_of
from .files import ABOUT, check, citations_of, make
from .options import SelfReasoningAsking, SelfReasoningMaking

BUILDER = Builder(
    name="self_reasoning",
    summary="a teacher's trajectories after quality control, in three stages; w/o GL, w/o QC and LLaMA2-FT",
    source="Xia et al. 2024, arXiv 2407.19813, sections on data generation, quality control and training, and Algorithm 1",
    asking=SelfReasoningAsking,
    making=SelfReasoningMaking,
    draw=draw,
    method=method_of,
    make=make,
    about=ABOUT,
    check=check,
    citations=citations_of,
)

__all__ = ["BUILDER", "SelfReasoningAsking", "SelfReasoningMaking"]
