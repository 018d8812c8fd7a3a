"""Tables in all forms: what would break a form is escaped, numbers are not rounded where they are data."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable

import pytest

from wikidx.runtimes.evaluation.reports.tables import (
    Column,
    Spread,
    Table,
    csv_line,
    html_line,
    latex,
    latex_line,
    markdown,
    markdown_line,
    percent,
    signed_percent,
    text,
    text_line,
    to_csv,
    to_records,
)
from wikidx.runtimes.evaluation.uncertainty import Interval

TABLE = Table(
    (Column("retriever"), Column("R@5", percent), Column("change", signed_percent), Column("questions")),
    [
        ("bm25", Interval(0.4375, 0.4, 0.475, 160), 0.0125, 1600),
        ("東京|x", Interval(math.nan, math.nan, math.nan, 0), -0.5, None),
    ],
    title="NQ",
    notes=["R@5 in per cent"],
)
EMPTY = Table((Column("run"), Column("EM", percent)), [])
SEEDS = Table((Column("runs"), Column("EM, %", percent)), [('a, "b"', Spread(0.5, 0.0123456, 3)), ("c", Spread(0.25, math.nan, 1))])


def test_text_is_aligned_also_for_wide_letters() -> None:
    assert text(TABLE) == (
        "NQ\n"
        "retriever                R@5  change  questions\n"
        "---------  -----------------  ------  ---------\n"
        "bm25       43.8 [40.0, 47.5]    +1.2      1,600\n"
        "東京|x                     –   -50.0          –\n"
        "R@5 in per cent"
    )
    assert text(EMPTY) == "run  EM\n---  --"
    assert text(Table((Column("run"),), [("a\x1b[31mb",)])).splitlines()[-1] == "a\\x1b[31mb"  # shown to a terminal, and not obeyed


def test_markdown_escapes_what_would_break_it() -> None:
    assert markdown(TABLE).split("\n")[-3:] == ["| 東京\\|x | – | -50.0 | – |", "", "R@5 in per cent"]
    assert markdown(EMPTY) == "| run | EM |\n|---|---|"
    data_issues = markdown(Table((Column("squad_em"),), [("_a_ *b* <i> `c`\n\\",)]))
    assert data_issues.split("\n") == ["| squad_em |", "|---|", "| \\_a\\_ \\*b\\* \\<i> \\`c\\` \\\\ |"]


def test_records_are_unrounded_and_json() -> None:
    assert json.loads(json.dumps(to_records(TABLE), allow_nan=False)) == [
        {"retriever": "bm25", "R@5": {"mean": 0.4375, "low": 0.4, "high": 0.475, "n": 160}, "change": 0.0125, "questions": 1600},
        {"retriever": "東京|x", "R@5": {"mean": None, "low": None, "high": None, "n": 0}, "change": -0.5, "questions": None},
    ]
    assert to_records(EMPTY) == []


FOREIGN = "=[a](b) ![i](c) &lt; AT&T [x]: d! \u202e\u200d"


@pytest.mark.parametrize(
    ("write", "line"),
    [
        (text_line, "=[a](b) ![i](c) &lt; AT&T [x]: d! \\u202e\u200d"),
        (html_line, "=[a](b) ![i](c) &amp;lt; AT&amp;T [x]: d! \\u202e\u200d"),
        (markdown_line, "=\\[a\\](b) \\!\\[i\\](c) \\&lt; AT&T \\[x\\]: d! \\\\u202e\u200d"),
        (csv_line, "'=[a](b) ![i](c) &lt; AT&T [x]: d! \\u202e\u200d"),
        (latex_line, "={[}a](b) !{[}i](c) \\&lt; AT\\&T {[}x]: d! \\textbackslash{}u202e\u200d"),
    ],
)
def test_foreign_texts_are_texts_wherever_they_are_written(write: Callable[[str], str], line: str) -> None:
    assert write(FOREIGN) == line


def test_a_spreadsheet_calculates_no_text_and_all_numbers() -> None:
    formulas = ("=1+1", "+1", "-2+3", "@SUM(1)", "\t=1", "\r=1", "＝1")
    table = Table((Column("@run"), Column("n")), [*((formula, -1.5) for formula in formulas), ("a=1", None)])
    lines = list(csv.reader(io.StringIO(to_csv(table))))
    assert lines == [["'@run", "n"], *([f"'{formula.strip()}", "-1.5"] for formula in formulas), ["a=1", ""]]


def test_numbers_are_shown_as_the_papers_do() -> None:
    assert [percent(value) for value in (0.41849, 1, math.inf, None, "n/a")] == ["41.8", "100.0", "–", "–", "n/a"]
    assert [signed_percent(value) for value in (0.0, -0.0004, Interval(0.01, -0.02, 0.04, 9))] == ["+0.0", "-0.0", "+1.0 [-2.0, +4.0]"]


def test_csv_holds_unrounded_numbers_in_columns_of_their_own() -> None:
    assert to_csv(TABLE).splitlines() == [
        "retriever,R@5,R@5 low,R@5 high,change,questions",
        "bm25,43.75,40,47.5,1.25,1600",
        "東京|x,,,,-50,",
    ]
    assert to_csv(SEEDS).splitlines() == ['runs,"EM, %","EM, % deviation"', '"a, ""b""",50,1.23456', "c,25,"]


def test_latex_escapes_what_would_break_it() -> None:
    lines = latex(TABLE._replace(notes=["100 % of a_b & {c} \\ ~^"])).split("\n")
    assert lines[6:8] == [r"bm25 & 43.8 {[}40.0, 47.5] & +1.2 & 1,600 \\", r"東京|x & -- & $-$50.0 & -- \\"]
    assert lines[-2] == r"\par\footnotesize 100 \% of a\_b \& \{c\} \textbackslash{} \textasciitilde{}\textasciicircum{}"
    assert 'a, "b" & 50.0 $\\pm$ 1.2 \\\\' in latex(SEEDS)
