"""Runs all tests with made-up input, round after round, each with a seed of its own: ``python -m tests.fuzz --minutes 10``.

A round gives every test ten times the examples of ``make test`` and takes some minutes; none starts after the time limit. A failure is
reported with its input and ends the rounds with exit status 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

_FILES = ("tests/fuzz", "tests/retrievers/server/test_bad_input.py", "tests/runtimes/questions/test_corrupt.py")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first round; by default the time")
    parser.add_argument("files", nargs="*", help="by default all that have made-up input")
    options = parser.parse_args()
    files = options.files or list(_FILES)
    end, seed = time.monotonic() + 60 * options.minutes, options.seed
    while time.monotonic() < end:
        started = time.monotonic()
        arguments = ["-m", "pytest", "-q", "-x", "--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}", *files]
        status = subprocess.run([sys.executable, *arguments], check=False).returncode
        outcome = "FAILED" if status else "passed"
        sys.stdout.write(f"seed {seed}: {outcome} in {time.monotonic() - started:.0f} s: {' '.join(files)}\n")
        sys.stdout.flush()
        if status:
            return 1
        seed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
