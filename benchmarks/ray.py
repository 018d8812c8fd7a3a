"""Cost of a Ray cluster, and agreement of its results with those of one process.

python -m benchmarks.ray serving sample             # overhead of shards in a search; see ``ray_serving``
python -m benchmarks.ray embedding --nodes 1 2      # passages per second, and the bytes; see ``ray_embedding``
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import ray_embedding, ray_serving
from benchmarks.report import exit_status

PARTS = {"serving": ray_serving.main, "embedding": ray_embedding.main}


def main(arguments: Sequence[str]) -> int:
    """Run the part named first, with the other arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ray", usage="%(prog)s {serving,embedding} ...  (--help after either says more)"
    )
    parser.add_argument("part", choices=PARTS)
    part = PARTS[parser.parse_args(arguments[:1]).part]
    return exit_status(lambda: part(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
