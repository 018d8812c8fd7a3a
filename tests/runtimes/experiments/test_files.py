"""Experiment files: those of the package against the papers' figures, and refusals of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import read_rows
from wikidx.base.errors import InputError, UnknownNameError
from wikidx.runtimes.evaluation.published import published_figures
from wikidx.runtimes.experiments.files import experiment_names, narrow, on_sample, read_experiment
from wikidx.runtimes.experiments.jobs import Job, estimate
from wikidx.runtimes.experiments.made import made_folder, make_checkpoint
from wikidx.runtimes.llms.base import Generate, Reply
from wikidx.runtimes.llms.naming import open_llms, parse_spec
from wikidx.runtimes.llms.prompts import Decoding
from wikidx.runtimes.methods.prompt_sets import read_prompt_set
from wikidx.runtimes.methods.self_rag import CONTROL
from wikidx.runtimes.questions import Question, Selection

WHOLE = Path(__file__).with_name("every_key.toml").read_text(encoding="utf-8")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(WHOLE, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", experiment_names())
def test_each_figure_of_a_papers_table_has_one_row_and_one_of_our_metrics(name: str) -> None:
    experiment = read_experiment(name)
    if not experiment.table:
        assert not any(experiment.figures(row) for row in experiment.rows)
        return
    printed = [each for each in published_figures() if (each.paper, each.table) == (experiment.paper, experiment.table)]
    of_rows = [figure for row in experiment.rows for figure in experiment.figures(row)]
    assert sorted(of_rows) == sorted(printed)
    assert {each.dataset for each in printed} - {"AVG"} == set(experiment.questions)
    of_sets = [figure for figure in of_rows if figure.dataset != "AVG"]
    assert all(set(figure.own_metrics) & set(experiment.questions[figure.dataset].metrics) for figure in of_sets)


@pytest.mark.parametrize("name", experiment_names())
def test_each_cell_can_be_run(name: str, tmp_path: Path) -> None:
    tried = list[object]()
    for cell in read_experiment(name).cells():
        made = (cell.row.method, cell.options, cell.row.prompts)
        if cell.missing is None and made not in tried:
            tried.append(made)
            job = Job(cell, 0, tmp_path, "", Selection(), [Question("1", "Who wrote Carmen?"), Question("2", "And who sang it?")], None)
            assert estimate(job, job.finished()).calls > 0
    assert tried


@pytest.mark.parametrize(("name", "row"), [("ra_isf/table1", "RA-ISF"), ("retrorag/table1", "RetroRAG")])
def test_rows_have_their_prompt_sets(name: str, row: str, tmp_path: Path) -> None:
    (cell, *_) = (each for each in read_experiment(name).cells() if each.row.name == row)
    method = Job(cell, 0, tmp_path, "", Selection(), [], None).method
    assert cell.row.prompts is not None
    assert method.prompts.files == read_prompt_set(method.name, cell.row.prompts)


def test_options_of_experiment_question_set_and_row(file: Path) -> None:
    cells = {(cell.row.name, cell.dataset): cell for cell in read_experiment(str(file)).cells()}
    assert cells["RAG", "mine"].options == {"k": 2, "shots": 1}
    assert cells["Depth, max_depth=2", "mine"].options == {"k": 2, "shots": 0, "max_depth": 2, "max_sub_questions": 3}
    assert ("Depth, max_depth=2", "claims") not in cells
    assert cells["RAG", "claims"].missing is None
    assert cells["Chain", "claims"].missing == "ircot gives no answers of the form 'long'"
    assert cells["Other", "mine"].missing == "not ours"


def test_parts_of_an_experiment(file: Path) -> None:
    experiment = read_experiment(str(file))
    assert [row.name for row in narrow(experiment, ["RAG"], []).rows] == ["RAG"]
    assert [row.name for row in narrow(experiment, [], ["claims"]).rows] == ["RAG", "Chain", "Other"]
    with pytest.raises(UnknownNameError, match="unknown row 'RAGS': did you mean 'RAG'"):
        narrow(experiment, ["RAGS"], [])


def test_the_sample_replaces_the_first_set_of_short_answers() -> None:
    experiment = on_sample(read_experiment("self_reasoning/table1"))
    assert {cell.dataset for cell in experiment.cells()} == {"sample"}
    sample = experiment.questions["sample"]
    assert (sample.source, sample.corpus, sample.retriever, sample.figures) == ("sample", "sample", "bm25", "NQ")
    made = {"Without retrieval", "With retrieval", "ReAct", "RECOMP", "Self-RAG (made)", "Self-Reasoning"}
    assert {row.name for row in experiment.rows if row.method} == made


def test_a_row_of_trained_tokens_stands_on_the_sample_with_made_weights() -> None:
    (row,) = narrow(on_sample(read_experiment("ra_isf/table1")), ["Self-RAG_13B (made)"], []).rows
    assert row.systems == ["Self-RAG_13B"]
    assert not made_folder().exists()  # an experiment that is read, or a dry run, makes nothing
    make_checkpoint()
    (spec,) = map(parse_spec, row.llm)
    answer = open_llms({"answer": spec})["answer"].run([Generate(prompt="[Retrieval]é", decoding=Decoding(max_tokens=4), control=CONTROL)])[
        0
    ]
    assert isinstance(answer, Reply)
    (gen,) = answer.result  # type: ignore[misc]
    assert len(gen.control[0].logprobs) == len(CONTROL)
    assert answer.prompt_tokens == 3  # the token, and the two bytes of é
    again = on_sample(read_experiment("self_reasoning/figure3")).rows[0]
    assert again.llm == row.llm


def test_what_a_row_needs_stands_where_its_figures_would() -> None:
    cells = {cell.row.name: cell for cell in read_experiment("ra_isf/table3").cells()}
    assert str(cells["sub-models=T5-780M"].missing).startswith("needs three T5-large")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    read_rows("runtimes/experiments/mistakes.jsonl"),
)
def test_errors_of_a_file_take_one_line_and_name_file_and_key(file: Path, old: str, new: str, message: str) -> None:
    assert old in WHOLE
    file.write_text(WHOLE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises((InputError, UnknownNameError), match=f"mine.toml.*{message}") as caught:
        read_experiment(str(file))
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown experiment 'ra_isf/table9': did you mean .*'ra_isf/table1'"):
        read_experiment("ra_isf/table9")
