"""Language models by the user's own code: backends that are plug-ins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

from wikidx.base.errors import IdxError, InputError
from wikidx.base.net.request_threads import RequestThreads
from wikidx.base.plugins import PlugIn, running
from wikidx.runtimes.errors import LLMError

from .base import AskYesNo, Call, Capabilities, Deliver, Gen, Generate, MeanNll, Mix, Nll, Reply, Score, Scores, YesNo, single
from .openai_connection import answer_all
from .prompts import Decoding, End, prompt_text
from .served_tokens import estimate, truncate_words
from .text import FREE_TEXT, NO_CONTROL, NO_MIX, NO_PROMPT_LOGPROBS, NO_SCORES, yes_no_from_word
from .thinking import finish_text

_WORD = Decoding(max_tokens=8)
_T = TypeVar("_T")


class Generates(Protocol):
    """A model by the user's own code.

    It may have further methods: ``yes_no(call)`` returns a ``YesNo``, ``nll(call)`` an ``Nll``, ``score(call)`` ``Scores``,
    ``count_tokens(text)`` a number, ``close()`` releases what it holds. Without them, a word decides yes or no, likelihoods are unknown,
    texts are not scored, tokens are estimated.
    """

    def generate(self, call: Generate) -> str | Gen:
        """Return one text after ``call.prompt``. Stop texts and thoughts in it are cut off by idx."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBackend:
    """A plug-in: a backend of language models, ``--llm FILE.py:VALUE:MODEL`` or, once it is named, ``--llm NAME:MODEL``.

    Attributes:
        name: the backend's name.
        open: model as the user names it, empty if not at all, and device, such as "cpu" or "auto" -> the model.
        concurrency: number of calls that are made at the same time, by threads.
        context: maximum number of tokens of prompt and text together, for messages; None: unknown.
    """

    plugin_kind: ClassVar[str] = "backend"

    name: str
    open: Callable[[str, str], Generates]
    concurrency: int = 1
    context: int | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise InputError(f"concurrency is {self.concurrency}: a backend answers at least one call at a time")


class PluggedLLM:
    """A model of a backend that is a plug-in; must be closed.

    Args:
        plugged: the backend.
        model: the model, as the user names it.
        device: device of its network, if it has one.

    Raises:
        InputError: the plug-in is no backend, or fails.
    """

    def __init__(self, plugged: PlugIn, model: str, device: str) -> None:
        backend = plugged.instance_of(OwnBackend, "a backend is an OwnBackend")
        self.name, self._plugged = f"{plugged.name}:{model}" if model else plugged.name, plugged
        self._pool = RequestThreads(backend.concurrency, plugged.name)
        with running(plugged, "opening a model"):
            self._model: Any = backend.open(model, device)
        self.capabilities = Capabilities(
            chat=True, prompt_logprobs=hasattr(self._model, "nll"), context=backend.context, concurrency=backend.concurrency
        )

    def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        """Answer calls. A call for which the plug-in fails has an error in place of a reply."""
        return answer_all(self._pool, self._answer, calls, deliver)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, by the plug-in or estimated."""
        if not hasattr(self._model, "count_tokens"):
            return estimate(text)
        with running(self._plugged, "counting tokens"):
            return int(self._model.count_tokens(text))

    def truncate(self, text: str, max_tokens: int, *, keep: End = "start") -> str:
        """Return the first or last words of a text, as ``count_tokens`` counts."""
        return truncate_words(text, max_tokens, keep=keep, count=self.count_tokens)

    def close(self) -> None:
        """Close the model; calls end with their answers."""
        self._pool.shutdown()
        if hasattr(self._model, "close"):
            with running(self._plugged, "closing a model"):
                self._model.close()

    def _answer(self, call: Call) -> Reply | LLMError:
        try:
            with running(self._plugged, f"on the prompt {prompt_text(call.prompt)[:40]!r}"):
                return self._reply(call)
        except IdxError as error:
            return error if isinstance(error, LLMError) else LLMError(str(error))

    def _reply(self, call: Call) -> Reply:
        n_read = self.count_tokens(prompt_text(call.prompt))
        match call:
            case Generate():
                gens = tuple(self._generate(single(call, number)) for number in range(call.n))
                return Reply(gens, n_read, sum(self.count_tokens(gen.text) for gen in gens))
            case AskYesNo():
                if hasattr(self._model, "yes_no"):
                    return Reply(_checked(self._model.yes_no(call), YesNo), n_read, 1)
                word = self._generate(Generate(prompt=call.prompt, role=call.role, decoding=_WORD)).text
                return Reply(yes_no_from_word(word, call.positive, call.negative), n_read, self.count_tokens(word))
            case Mix():
                raise LLMError(f"{self.name} {NO_MIX}")
            case Score():
                if hasattr(self._model, "score"):
                    return Reply(_checked(self._model.score(call), Scores), n_read)
                raise LLMError(f"{self.name} {NO_SCORES.format(role=call.role)}")
            case MeanNll():
                if hasattr(self._model, "nll"):
                    return Reply(_checked(self._model.nll(call), Nll), n_read)
                return Reply(Nll(total=None, n_tokens=0, degraded=(NO_PROMPT_LOGPROBS,)))

    def _generate(self, call: Generate) -> Gen:
        written = self._model.generate(call)
        gen = Gen(text=written) if isinstance(written, str) else _checked(written, Gen)
        if call.control and not gen.control:
            raise LLMError(f"{self.name} {NO_CONTROL}")
        return finish_text(replace(gen, degraded=(*gen.degraded, FREE_TEXT)) if call.schema else gen, call.decoding.stop)


def _checked(value: object, kind: type[_T]) -> _T:
    """Return a value of the right class; raise ``TypeError`` for another."""
    if not isinstance(value, kind):
        raise TypeError(f"it returns {value!r:.40}, not a {kind.__name__}")
    return value
