"""A run in virtual time: the same calls after the same latencies, with the same number of slots, and no other delay.

All questions are open from the beginning, a search takes no time, and equal requests are served once. A free slot takes the request that
came first, or the one whose question will take longest from there: no scheduler can know that, so its figure is a bound.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wikidx.runtimes.execution.services import Services
from wikidx.runtimes.llms.base import AskYesNo, Call, Generate
from wikidx.runtimes.llms.cache import is_repeatable
from wikidx.runtimes.llms.openai_bodies import build_body, parse_gen, parse_yes_no
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.methods.requests import Gather, LookUpTitle, Retrieve, Run, Truncate
from wikidx.runtimes.questions import Question

from .endpoint import answer, latency, text_of

Remaining = Mapping[tuple[int, Call], float]
"""Time from a call of a question, given by its number, to the question's end, if nothing ever waits."""


class Bounds(NamedTuple):
    """Lower bounds on the duration of a run, in seconds.

    Attributes:
        n_calls: number of calls.
        work: sum of the latencies, divided by the number of slots.
        chain: the longest question, if nothing ever waits.
        in_order: duration if slots serve the requests in their order.
        with_foresight: duration if slots serve the longest questions first.
    """

    n_calls: int
    work: float
    chain: float
    in_order: float
    with_foresight: float


@dataclass(eq=False, slots=True)
class _Branch:
    question: int
    run: Run[Any]
    parent: tuple[_Branch, int] | None = None
    results: list[Any] = field(default_factory=list)
    n_open: int = 0


class Simulation:
    """A method over questions at the fake endpoint.

    Args:
        method: the method's name, which is also the model's.
        kind: the kind of latency.
        questions: the questions.
        services: searcher and title lookup.
    """

    def __init__(self, method: str, kind: str, questions: Sequence[Question], services: Services) -> None:
        self._method, self._kind, self._questions, self._services = method, kind, questions, services
        self._known = dict[Call | Retrieve, Any]()

    def bounds(self, n_slots: int) -> Bounds:
        """Return the bounds for a number of slots."""
        free = _Schedule(self, math.inf, {})
        n_calls, work = len(free.replies), sum(seconds for seconds, _ in free.replies.values()) / n_slots
        in_order, with_foresight = (_Schedule(self, n_slots, remaining).now for remaining in ({}, free.remaining))
        return Bounds(n_calls, work, free.now, in_order, with_foresight)

    def start(self) -> list[_Branch]:
        """Return a new generator for each question."""
        method = find_method(self._method)
        return [_Branch(number, method.run(question.text, method.options())) for number, question in enumerate(self._questions)]

    def serve(self, call: Call) -> tuple[float, Any]:
        """Return latency and result of a call."""
        assert isinstance(call, Generate | AskYesNo)
        if call not in self._known:
            body = build_body(call, self._method)
            choices = answer(body, text_of(body))["choices"]
            result = parse_yes_no(choices[0], call, ()) if isinstance(call, AskYesNo) else tuple(parse_gen(c, call, ()) for c in choices)
            self._known[call] = latency(text_of(body), self._kind), result
        seconds, result = self._known[call]
        return seconds, result

    def serve_at_once(self, request: Any) -> Any:  # noqa: ANN401 - any request but a call
        """Return the result of a search, a lookup, a note or a truncation; no text of these runs is long enough to be truncated."""
        if isinstance(request, LookUpTitle):
            assert self._services.look_up_title is not None
            return tuple(self._services.look_up_title(request.title))
        if not isinstance(request, Retrieve):
            return request.text if isinstance(request, Truncate) else None
        if request not in self._known:
            assert self._services.searcher is not None
            rules = {name: rule for name in ("merge", "dedup") if (rule := getattr(request, name))}
            options = dataclasses.replace(self._services.search, k=request.k, **rules)
            (self._known[request],) = self._services.searcher.search_groups([list(request.queries)], options)
        return self._known[request]


class _Schedule:
    """The events of a run.

    Attributes:
        now: time of the last event.
        replies: latency and result of each different call.
        remaining: of each call of each question, the time to the question's end.
    """

    def __init__(self, simulation: Simulation, n_slots: float, remaining: Remaining) -> None:
        self._simulation, self._priorities, self._numbers = simulation, remaining, itertools.count()
        self.now, self.replies = 0.0, dict[Call, tuple[float, Any]]()
        self._done, self._waiting = set[Call](), dict[Call, list[_Branch]]()
        self._queue, self._running = list[tuple[float, int, Call]](), list[tuple[float, int, Call]]()
        self._n_sampled = Counter[tuple[int, Call]]()
        self._asked, self._ends = dict[tuple[int, Call], float](), dict[int, float]()
        for branch in simulation.start():
            self._go_on(branch, None)
        while self._queue or self._running:
            while self._queue and len(self._running) < n_slots:
                _, number, call = heapq.heappop(self._queue)
                heapq.heappush(self._running, (self.now + self.replies[call][0], number, call))
            self.now, _, call = heapq.heappop(self._running)
            self._done.add(call)
            for branch in self._waiting.pop(call):
                self._go_on(branch, self.replies[call][1])
        self.remaining = {(question, call): self._ends[question] - at for (question, call), at in self._asked.items()}

    def _go_on(self, branch: _Branch, result: Any) -> None:  # noqa: ANN401 - the result of any request
        """Continue a branch until it waits for a call."""
        try:
            while True:
                request = branch.run.send(result)
                if isinstance(request, Gather) and request.runs:
                    branch.results, branch.n_open = [None] * len(request.runs), len(request.runs)
                    for number, run in enumerate(request.runs):
                        self._go_on(_Branch(branch.question, run, (branch, number)), None)
                    return
                if isinstance(request, Generate | AskYesNo):
                    call = self._identify(branch.question, dataclasses.replace(request, path=(), role=""))
                    if call not in self._done:
                        self._submit(branch, call)
                        return
                    result = self.replies[call][1]
                else:
                    result = [] if isinstance(request, Gather) else self._simulation.serve_at_once(request)
        except StopIteration as stop:
            self._end(branch, stop.value)

    def _identify(self, question: int, call: Generate | AskYesNo) -> Call:
        """Give a sampling call without a seed a seed of its own, so that it is equal to no other."""
        if isinstance(call, AskYesNo) or is_repeatable(call):
            return call
        self._n_sampled[question, call] += 1
        seed = 1_000 * question + self._n_sampled[question, call]
        return dataclasses.replace(call, decoding=dataclasses.replace(call.decoding, seed=seed))

    def _submit(self, branch: _Branch, call: Call) -> None:
        self._asked.setdefault((branch.question, call), self.now)
        if call not in self._waiting:
            self.replies[call] = self._simulation.serve(call)
            heapq.heappush(self._queue, (-self._priorities.get((branch.question, call), 0.0), next(self._numbers), call))
        self._waiting.setdefault(call, []).append(branch)

    def _end(self, branch: _Branch, value: Any) -> None:  # noqa: ANN401 - what any generator returns
        if branch.parent is None:
            self._ends[branch.question] = self.now
            return
        parent, number = branch.parent
        parent.results[number] = value
        parent.n_open -= 1
        if not parent.n_open:
            self._go_on(parent, parent.results)
