"""Replies of an endpoint that are kept, and those that are not."""

from __future__ import annotations

from pathlib import Path

from tests.runtimes.llms.calling import ASK, FAST, SHORT, TURNS, Open, error_of, gens
from tests.runtimes.llms.endpoint import Endpoint, serving
from wikidx.runtimes.llms.base import AskYesNo, Call, Decoding, Generate, MeanNll
from wikidx.runtimes.llms.cache import ReplyCache
from wikidx.runtimes.llms.openai_http import OpenAIHttp
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.llms.scripted import ScriptedLLM


def test_replies_are_kept_and_paid_for_once(opened: Open, endpoint: Endpoint, tmp_path: Path) -> None:
    seeded = Generate(prompt=TURNS, decoding=Decoding(max_tokens=6, temperature=1.0, seed=5), n=2, logprobs=True)
    unseeded = Generate(prompt=TURNS, decoding=Decoding(max_tokens=6, temperature=1.0))
    calls: list[Call] = [
        ASK,
        seeded,
        AskYesNo(prompt=TURNS),
        MeanNll(prompt="The", continuation=" river"),
        Generate(prompt=TURNS, decoding=SHORT, role="other"),
    ]
    cache = ReplyCache(tmp_path / "replies.sqlite")
    first = opened(ConnectionOptions(concurrency=1), cache=cache).run([*calls, unseeded])
    cache.close()
    assert len(endpoint.bodies) == 5  # the role is not part of the key
    cache = ReplyCache(tmp_path / "replies.sqlite")
    again = opened(FAST, cache=cache).run(calls)
    assert again == first[:-1]
    assert len(endpoint.bodies) == 5
    opened(FAST, cache=cache).run([unseeded])
    assert len(endpoint.bodies) == 6
    endpoint.faults.append("400")
    fresh = Generate(prompt="new", decoding=SHORT)
    assert error_of(opened(FAST, cache=cache).run([fresh])[0])
    assert gens(opened(FAST, cache=cache).run([fresh])[0])  # a failure is not kept
    cache.close()


def test_a_reply_is_kept_for_the_context_that_its_prompt_was_cut_to(opened: Open, endpoint: Endpoint, tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    for n_asked, context in ((1, 200), (2, 300), (2, 200), (3, None)):
        assert gens(opened(ConnectionOptions(context=context), cache=cache).run([ASK])[0])
        assert len(endpoint.bodies) == n_asked
    cache.close()


def test_two_endpoints_that_name_a_model_alike_are_two_models(opened: Open, endpoint: Endpoint, tmp_path: Path) -> None:
    """Many servers call whatever they run "default"."""
    other = Endpoint(ScriptedLLM(lambda call: "another"))
    cache = ReplyCache(tmp_path / "replies.sqlite")
    with serving(other) as url:
        there = OpenAIHttp("tiny", url, options=FAST, cache=cache)
        here = gens(opened(FAST, cache=cache).run([ASK])[0])[0].text
        assert gens(there.run([ASK])[0])[0].text == "another" != here
        there.close()
    cache.close()
