"""Equality of calls, and handling of unusable cache files."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.conftest import file_limit
from tests.runtimes.llms.calling import ASK, FAST, gens
from tests.runtimes.llms.fake_server import FakeServer, chat, fake_serving
from wikidx.base.errors import StorageError
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.llms.base import AskYesNo, Call, Deliver, Gen, Generate, MeanNll, Nll, Reply, YesNo
from wikidx.runtimes.llms.cache import CachedLLM, ReplyCache, cache_key
from wikidx.runtimes.llms.naming import Settings, open_llms, parse_spec
from wikidx.runtimes.llms.prompts import Choice, Decoding, Message, Regex, TokenIds
from wikidx.runtimes.llms.scripted import ScriptedLLM


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "replies.sqlite"


@pytest.fixture
def cache(file: Path) -> Iterator[ReplyCache]:
    with closing(ReplyCache(file)) as opened:
        yield opened


DIFFERENT: list[Call] = [
    Generate(prompt="a"),
    Generate(prompt="b"),
    Generate(prompt=(Message("user", "a"),)),
    Generate(prompt=(Message("system", "a"),)),
    Generate(prompt=TokenIds((1,))),
    Generate(prompt="a", decoding=Decoding(max_tokens=1)),
    Generate(prompt="a", decoding=Decoding(stop=("x",))),
    Generate(prompt="a", decoding=Decoding(temperature=1.0, seed=1)),
    Generate(prompt="a", decoding=Decoding(temperature=1.0, seed=2)),
    Generate(prompt="a", decoding=Decoding(temperature=1.0, seed=1), n=2),
    Generate(prompt="a", logprobs=True),
    Generate(prompt="a", schema=Choice(("x",))),
    Generate(prompt="a", schema=Regex("x")),
    AskYesNo(prompt="a"),
    AskYesNo(prompt="a", positive=("true",)),
    MeanNll(prompt="a", continuation="b"),
]


def test_calls_that_differ_have_different_keys_and_role_and_path_do_not_count() -> None:
    assert len({cache_key("m", call) for call in DIFFERENT} | {cache_key("other", call) for call in DIFFERENT}) == 2 * len(DIFFERENT)
    assert cache_key("m", Generate(prompt="a", role="know", path=("here",))) == cache_key("m", Generate(prompt="a"))


@pytest.mark.parametrize(
    "reply",
    [
        Reply((Gen(text="é\n", finish="length", logprobs=(-0.1, -2.5), token_ids=(3, 4), degraded=("x",)), Gen(text="")), 5, 6),
        Reply(YesNo(p_positive=0.1, p_negative=0.30000000000000004, degraded=("y",)), 1, 1),
        Reply(Nll(total=None, n_tokens=0)),
    ],
)
def test_a_reply_comes_back_as_it_was_and_stays(cache: ReplyCache, file: Path, reply: Reply) -> None:
    with closing(ReplyCache(file)) as other:
        assert cache.get("m", DIFFERENT[0]) is None
        cache.put("m", DIFFERENT[0], reply)
        other.put("m", DIFFERENT[0], Reply((Gen(text="another"),)))
        assert other.get("m", DIFFERENT[0]) == reply


def test_a_file_that_is_no_cache_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "replies.sqlite"
    file.write_text("this is no database, and long enough to be looked at " * 10)
    with pytest.raises(StorageError, match=r"replies cannot be kept in .*replies\.sqlite, .*: file is not a database: name another"):
        ReplyCache(file)
    with pytest.raises(StorageError, match="replies cannot be kept in"):
        ReplyCache(file / "below")


@pytest.mark.parametrize(
    "corruption",
    [
        "reply = cast(replace(reply, 'Rome', 'Oslo') AS BLOB)",
        "reply = substr(reply, 1, 9)",
        "reply = 7",
        "reply = cast(x'ff' AS TEXT)",
        "sha256 = x'00'",
        "key = x'{other}'",
    ],
)
def test_a_corrupt_reply_counts_as_absent(cache: ReplyCache, file: Path, corruption: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its call is answered and kept anew."""
    call, other = DIFFERENT[:2]
    asked = other if corruption.startswith("key") else call
    cache.put("m", call, Reply((Gen(text="Rome"),)))
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute(f"UPDATE replies SET {corruption.format(other=cache_key('m', other).hex())}")
    assert cache.get("m", asked) is None
    assert caplog.messages == [f"a reply in {file} is corrupt: the call is repeated"]
    cache.put("m", asked, Reply((Gen(text="Paris"),)))
    assert cache.get("m", asked) == Reply((Gen(text="Paris"),))


def test_a_file_whose_schema_is_damaged_is_refused(file: Path) -> None:
    ReplyCache(file).close()
    file.write_bytes(file.read_bytes().replace(b"CREATE TABLE", b"CR\xe5ATE TABLE"))
    with pytest.raises(StorageError, match=r"replies cannot be kept in .*replies\.sqlite"):
        ReplyCache(file)


def test_each_call_is_answered_once(cache: ReplyCache) -> None:
    """Of each kind. Sampling without a seed and failures are never cached, and another model's replies are its own."""
    asked: list[Call] = []

    def answer(call: Call) -> str | float:
        asked.append(call)
        return "text" if isinstance(call, Generate) else 0.25

    unseeded = Generate(prompt="a", decoding=Decoding(temperature=1.0))
    failing = Generate(prompt="two texts", n=2, decoding=Decoding(temperature=1.0, seed=1))
    calls: list[Call] = [Generate(prompt="a"), AskYesNo(prompt="a"), MeanNll(prompt="a", continuation="b"), unseeded, failing]
    first = CachedLLM(ScriptedLLM(answer), cache, "m").run(calls)
    mixed = CachedLLM(ScriptedLLM(answer), cache, "m").run([Generate(prompt="new"), *calls])
    assert mixed[1:5] == first[:4]
    assert asked == [*calls, Generate(prompt="new"), unseeded, failing]
    CachedLLM(ScriptedLLM(answer), cache, "other").run(calls[:1])
    assert asked[8:] == calls[:1]


def test_a_reply_is_kept_as_soon_as_it_comes(cache: ReplyCache) -> None:
    class Breaks(ScriptedLLM):
        """A model that breaks down after its first reply."""

        def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
            assert deliver is not None
            deliver({0: super().run(calls)[0]})
            raise LLMError("no more")

    with pytest.raises(LLMError, match="no more"):
        CachedLLM(Breaks(["first", "second"]), cache, "m").run(DIFFERENT[:2])
    assert [cache.get("m", call) is not None for call in DIFFERENT[:2]] == [True, False]


def test_replies_of_an_endpoint_are_its_own_and_those_of_a_context(cache: ReplyCache) -> None:
    """Many servers call whatever they run "default". Prompts are cut to the context."""
    with ExitStack() as stack:
        servers = [FakeServer(lambda path, body, text=text: chat(text)) for text in ("here", "there")]  # type: ignore[misc]
        urls = [stack.enter_context(fake_serving(server)) for server in servers]

        def ask(number: int, context: int | None) -> str:
            options = dataclasses.replace(FAST, context=context)
            with closing(open_llms({"answer": parse_spec(f"openai:m@{urls[number]}")}, Settings(options, cache))["answer"]) as model:
                return gens(model.run([ASK])[0])[0].text

        asked = [(0, 200), (0, 300), (0, 200), (0, None), (1, 200), (1, 200)]
        assert [ask(number, context) for number, context in asked] == ["here"] * 4 + ["there"] * 2
    assert [len(server.bodies) for server in servers] == [3, 1]


def test_a_full_disk_keeps_the_replies_and_never_advises_to_delete_them(cache: ReplyCache, file: Path) -> None:
    reply = Reply((Gen(text="Rome" * 1000),))
    cache.put("m", DIFFERENT[0], reply)
    with file_limit(0), pytest.raises(StorageError) as raised:
        cache.put("m", DIFFERENT[1], reply)
    assert str(raised.value) == (
        f"replies cannot be kept in {file}, where those before are kept: File too large: {file}: "
        "raise the limit of file sizes (ulimit -f) and run the same command again"
    )
    assert cache.get("m", DIFFERENT[0]) == reply
