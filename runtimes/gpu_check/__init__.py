"""``idx check --gpu``: checks and speed of all that runs on a GPU, with made data; without a GPU, of the same on the CPU, at small sizes.

checks     the parts in their order, with the sizes on a GPU and on a CPU; ``check_gpu``
running    one part in a process of its own, with a time limit; ``python -m wikidx.runtimes.gpu_check.part`` runs in it (part)
task       the view that a part has of its run: the device, and the differences and figures that it reports
reporting  table, JSON, and the text of an issue

machine    facts about the machine, and the ceilings of bandwidth and of matrix products
networks   checkpoints with random weights, and made texts
search     exact search against float64       encoders   vectors, masks, precisions, embedding that resumes
indexes    FAISS's indexes                    models     cross-encoder and language model
memory     memory that is refused             speed      exact search, embedding, encoding of queries, reranking
"""

from .checks import PARTS, check_gpu
from .running import Outcome

__all__ = ["PARTS", "Outcome", "check_gpu"]
