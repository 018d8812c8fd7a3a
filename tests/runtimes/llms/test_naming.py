"""Names of models and their assignment to roles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtimes.llms.calling import gens, result_of
from wikidx.base.errors import IdxError, InputError, UnknownNameError
from wikidx.runtimes.llms.base import AskYesNo, Generate, MeanNll, Nll, YesNo
from wikidx.runtimes.llms.naming import ModelSpec, assign_models, close_llms, open_llms, parse_model_options, parse_spec
from wikidx.runtimes.llms.prompts import Decoding
from wikidx.runtimes.llms.scripted import read_script

URL = "http://127.0.0.1:8000/v1"
SAMPLED = Decoding(temperature=1.0)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("openai:gpt-4.1-mini", ModelSpec(None, "openai", "gpt-4.1-mini", None)),
        (f"openai:org/model@{URL}", ModelSpec(None, "openai", "org/model", URL)),
        ("openai:@cf/org/model@20240620", ModelSpec(None, "openai", "@cf/org/model@20240620", None)),
        (f"relevance=openai:llama3:8b@{URL}", ModelSpec("relevance", "openai", "llama3:8b", URL)),
        ("hf:/a/b=c@d", ModelSpec(None, "hf", "/a/b=c@d", None)),
        ("know=scripted:a.jsonl", ModelSpec("know", "scripted", "a.jsonl", None)),
        ("vllm:org/model@main", ModelSpec(None, "vllm", "org/model@main", None)),
        ("smollm2", ModelSpec(None, "hf", "smollm2", None)),
        ("know=smollm2", ModelSpec("know", "hf", "smollm2", None)),
        ("hf:./smollm2", ModelSpec(None, "hf", "./smollm2", None)),
    ],
)
def test_a_specification_is_read(text: str, spec: ModelSpec) -> None:
    assert parse_spec(text) == spec


@pytest.mark.parametrize("text", ["", "openai", "openai:", "=openai:x", "Role=openai:x", f"hf:x@{URL}", "gpt-4", f"smollm2@{URL}"])
def test_what_is_no_specification_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_spec(text)


@pytest.mark.parametrize("place", ["127.0.0.1:8799/v1", "localhost", "gpu01/v1", "api.example.org"])
def test_an_address_without_a_scheme_is_not_taken_for_a_part_of_the_model(place: str) -> None:
    with pytest.raises(InputError, match=f"write @http://{place};"):
        parse_spec(f"openai:m@{place}")
    assert parse_spec(f"openai:m@{place}@{URL}") == ModelSpec(None, "openai", f"m@{place}", URL)


def test_an_unknown_backend_has_near_names() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'openai'"):
        parse_spec("open:x")


def test_roles_without_a_model_of_their_own_share_one() -> None:
    big, small = parse_spec("openai:big"), parse_spec("openai:small")
    assert assign_models(["relevance=openai:small", "openai:big"], ["answer", "relevance"]) == {"answer": big, "relevance": small}


def test_options_are_those_of_a_role_or_else_of_all_models_in_this_process() -> None:
    specs = assign_models(
        [f"judge=openai:m@{URL}", "know=vllm:org/m", "hf:x"],
        ["answer", "relevance", "know", "judge"],
        options=["relevance.dtype=bfloat16", "dtype=float16", "know.dtype=auto", 'know.hf_overrides={"a": [1]}', "answer.batch_tokens=9"],
    )
    assert {role: parse_model_options(spec) for role, spec in specs.items()} == {
        "answer": {"batch_tokens": 9, "dtype": "float16"},
        "relevance": {"dtype": "bfloat16"},
        "know": {"dtype": "auto", "hf_overrides": {"a": [1]}},
        "judge": {},
    }
    assert len({specs["answer"], specs["relevance"]}) == 2  # opened separately


def test_a_model_is_opened_once_for_all_its_roles(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text(
        '{"text": "first"}\n{"role": "know", "yes": 0.25}\n{"match": "Who", "texts": ["a", "b"]}\n\n{"nll": 2}\n', encoding="utf-8"
    )
    llms = open_llms(assign_models([f"scripted:{file}", f"know=scripted:{file}"], ["answer", "know"]))
    assert llms["answer"] is llms["know"]
    sampled = Generate(prompt="Who?", n=2, decoding=SAMPLED)
    texts, judged, first, scored = llms["answer"].run(
        [sampled, AskYesNo(prompt="Who?", role="know"), Generate(prompt="x"), MeanNll(prompt="y", continuation="b c")]
    )
    assert [gen.text for gen in gens(texts)] == ["a", "b"]
    assert (result_of(judged, YesNo).score, gens(first)[0].text, result_of(scored, Nll).mean) == (0.25, "first", 2)
    (left,) = llms["answer"].run([Generate(prompt="more")])
    assert "the script has 2 answers, and there is one more call, of role 'answer': 'more'" in str(left)
    close_llms(llms.values())


@pytest.mark.parametrize("line", ["not json", "[]", '{"text": 1}', '{"text": "a", "yes": 1}', '{"text": "a", "extra": 1}', "{}"])
def test_a_script_s_lines_are_checked(tmp_path: Path, line: str) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text(f'{{"text": "a"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"answers\.jsonl:2 is no"):
        open_llms({"answer": parse_spec(f"scripted:{file}")})


def test_a_script_s_answers_end_at_new_lines_only(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text('{"text": "a\u2028b\x85c"}\n', encoding="utf-8")
    assert read_script(file)(Generate(prompt="?")) == "a\u2028b\x85c"
    with pytest.raises(InputError, match="there is no file"):
        read_script(tmp_path / "none")


def test_vllm_says_which_extra_it_needs() -> None:
    with pytest.raises(IdxError, match=r"pip install .*\[vllm\]'"):
        open_llms({"answer": parse_spec("vllm:org/model")})
