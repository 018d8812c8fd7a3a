"""GAR's expansions of NQ's test questions (Mao et al., 2021, as Pyserini distributes them) as groups of queries.

    python -m benchmarks.gar FOLDER queries.nq_oracle.jsonl.gz groups.jsonl

writes a group for every question of a file that is among NQ's 3,610, matched by text, for ``idx eval retrieval --groups``.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

from wikidx.runtimes.questions import read_questions

_KINDS = ("answers", "titles", "sentences")


def gar_groups(folder: Path) -> list[list[str]]:
    """Return five queries for each question: itself, and itself with answers, with titles, with a sentence, with the first title."""
    columns = [[line.split("\t", 1)[1] for line in _lines(folder / f"topics.nq.test.gar-t5.{kind}.tsv.gz")] for kind in _KINDS]
    questions = [line.split("\t")[0] for line in _lines(folder / "topics.nq.test.txt.gz")]
    return [[*row, row[2].split(" *** ")[0]] for row in zip(questions, *columns, strict=True)]


def _lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gar")
    parser.add_argument("folder", type=Path, help="folder of GAR's expansions")
    parser.add_argument("questions", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    expansions = {group[0]: group[1:] for group in gar_groups(options.folder)}
    questions = read_questions(options.questions)
    known = [question for question in questions if question.text in expansions]
    lines = (json.dumps({"id": question.id, "queries": expansions[question.text]}, ensure_ascii=False) + "\n" for question in known)
    options.out.write_text("".join(lines), encoding="utf-8")
    print(f"{len(known):,} of {len(questions):,} questions have a group")


if __name__ == "__main__":
    main()
