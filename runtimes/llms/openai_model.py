"""Models at OpenAI-compatible endpoints: vLLM's server, llama.cpp, Ollama, a cloud.

The server is asked once what it is (``dialects``); the rest is learned from its answers, for as long as the model is open. If the endpoint
refuses a field by name, later requests omit the field, and ``degraded`` of the results lists the effect. A model without a chat template
receives the turns as one text. Turns that a chat template refuses are folded (``turns``). An endpoint without plain completions receives a
plain text as a user's turn. A prompt that the endpoint refuses as too long is sent again with shorter passages: by the numbers in the
refusal, else with a quarter fewer tokens.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any

from wikidx.base.net.request_threads import RequestThreads
from wikidx.runtimes.errors import LLMError, PromptTooLong, Unreachable

from . import openai_answers as answers
from . import openai_requests as requests
from .base import AskYesNo, Call, Capabilities, Deliver, Gen, Generate, MeanNll, Mix, Nll, Reply, Score, single
from .dialects import OLLAMA, UNKNOWN, Body, own_limits, recognize
from .fitting import fit
from .mixing import Mixture
from .openai_connection import Connection, Refused, answer_all
from .openai_logprobs import generated_tokens
from .openai_refusals import Lacks
from .options import DEFAULT_CONCURRENCY, ConnectionOptions
from .prompts import Choice, Decoding, End, JsonSchema, Message, Prompt, Regex, Schema, TokenIds, prompt_text
from .served_tokens import ServedTokens
from .text import BY_WORD, LOW_MASS, MAX_BLANKS, NO_CONTROL, NO_MIX, NO_PROMPT_LOGPROBS, NO_SCORES, NO_TEMPLATE, yes_no_from_word
from .thinking import lacks_room, limit_answer, make_room
from .turns import Fold, adapt_to_text, as_text, end_turn, fold_turns, next_fold

CLOUD = "https://api.openai.com/v1"

_WORD_TOKENS = 8  # enough for a word after a quote or line break
_ONLY_CHAT = "no plain completions: the prompt is sent as a user turn"


class OpenAIHttp:
    """A model at an endpoint; must be closed.

    Args:
        model: the model's name at the endpoint.
        url: the endpoint; None: the environment's OPENAI_BASE_URL, or else OpenAI's cloud.
        options: connection options.

    Raises:
        InputError: the URL or the API key is invalid.
    """

    def __init__(self, model: str, url: str | None = None, *, options: ConnectionOptions | None = None) -> None:
        url = url or os.environ.get("OPENAI_BASE_URL") or CLOUD
        options = options or ConnectionOptions()
        self.name = options.name or f"openai:{model}@{url}"
        self._model, self._options = model, options
        self._is_cloud = url == CLOUD
        self._connection = Connection(self.name, url, options)
        self._concurrency = n_threads = options.concurrency or DEFAULT_CONCURRENCY
        self._pool, self._draws = (RequestThreads(n_threads, name) for name in ("llm", "llm-draws"))
        self._slots = threading.BoundedSemaphore(n_threads)
        self._probe_lock, self._is_probed, self._is_context_asked = threading.Lock(), False, False
        self._dialect, self._tokens = UNKNOWN, ServedTokens(self._connection, model, options.context)
        self._thinks = self._opens_thoughts = False  # although thinking is off; by the chat template
        self._lacks, self._answer_tokens = Lacks(), 1
        self._has_logprobs = self._has_echo = True
        self._has_returned_logprobs = False  # if true, an answer without logprobs does not prove that the endpoint lacks them

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the endpoint: those of its dialect, until an answer disproves them."""
        self._probe()
        lacks = self._lacks
        examples: dict[str, Schema] = {"choice": Choice(("a",)), "regex": Regex("a"), "json": JsonSchema("{}")}
        structures = {kind: self._dialect.structure(schema, is_chat=True) for kind, schema in examples.items()}
        return Capabilities(
            chat=not lacks.chat,
            logprobs=self._has_logprobs and "logprobs" not in lacks.fields,
            top_logprobs=lacks.top if self._has_logprobs and not {"logprobs", "top_logprobs"} & lacks.fields else 0,
            prompt_logprobs=self._has_echo and not lacks.completions,
            structured=frozenset(kind for kind, fields in structures.items() if fields and not fields.keys() & lacks.fields),
            n=lacks.n != 1,
            seed="seed" not in lacks.fields,
            token_ids=not lacks.completions,
            context=self._tokens.context,
            concurrency=self._concurrency,
        )

    def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        """Answer calls concurrently. A failed call has an error in place of a reply.

        If the endpoint accepts no connection, all waiting calls fail immediately.
        """
        return answer_all(self._pool, partial(self._answer, down=threading.Event()), calls, deliver)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens by the server's tokenizer; else an estimate, one per four ASCII characters."""
        self._probe()
        return self._tokens.count(text)

    def truncate(self, text: str, max_tokens: int, *, keep: End = "start") -> str:
        """Return the first or last ``max_tokens`` tokens of a text; without a tokenizer whole words, by estimate."""
        self._probe()
        return self._tokens.truncate(text, max_tokens, keep=keep)

    def close(self) -> None:
        """Close the connections. Pending retries end with their last error; other calls end with their answers."""
        self._connection.close()
        for pool in (self._pool, self._draws):
            pool.shutdown()

    def _answer(self, call: Call, down: threading.Event) -> Reply | LLMError:
        if down.is_set():
            return Unreachable(f"{self.name} was not called: other calls could not connect")
        try:
            self._probe()
            started, reply = time.monotonic(), self._reply(call)
            return reply._replace(seconds=time.monotonic() - started)
        except LLMError as error:
            if isinstance(error, Unreachable):
                down.set()
            return error

    def _probe(self) -> None:
        """Ask the server, once, for its dialect, the model's context length, and its number of slots."""
        with self._probe_lock:
            if self._is_probed:
                return
            server = recognize(self._connection, self._model, is_cloud=self._is_cloud, known=self._options.dialect)
            self._dialect, self._lacks.n = server.dialect, None if server.dialect.has_n else 1
            self._tokens.context, self._tokens.tokenizer = self._tokens.context or server.context, server.dialect.tokenizer
            if server.slots and self._options.concurrency is None:
                self._concurrency = min(server.slots, DEFAULT_CONCURRENCY)
                self._slots = threading.BoundedSemaphore(self._concurrency)
            self._is_probed = True

    def _reply(self, call: Call) -> Reply:
        match call:
            case Generate():
                return self._generate(call)
            case AskYesNo():
                return self._yes_no(call)
            case MeanNll():
                return self._nll(call)
            case Mix():
                return self._mix(call)
            case Score():
                raise LLMError(f"{self.name} {NO_SCORES.format(role=call.role)}")

    def _generate(self, call: Generate) -> Reply:
        """Generate texts. If it turns out that the model thinks and has no room for it, repeat the call with room for thoughts."""
        has_room = self._thinks or (call.decoding.thinking or self._options.thinking) != "off"
        reply, has_thought = self._generate_once(call)
        if not has_thought or has_room:
            return reply
        self._thinks = True
        if not lacks_room(reply):
            return reply
        again, _ = self._generate_once(call)
        n_tokens = (reply.prompt_tokens + again.prompt_tokens, reply.completion_tokens + again.completion_tokens)
        return Reply(again.result, *n_tokens, again.model)

    def _generate_once(self, call: Generate) -> tuple[Reply, bool]:
        """Return a reply, and whether the model has thought."""
        asked = make_room(call, self._options.thinking, thinks=self._thinks, context=self._tokens.context)
        try:
            answer = self._send(asked)
        except PromptTooLong:  # with less room for thoughts, the prompt may fit the context that is known by now
            smaller = make_room(call, self._options.thinking, thinks=self._thinks, context=self._tokens.context or 0)
            if smaller == asked:
                raise
            asked, answer = smaller, self._send(smaller)
        if NO_TEMPLATE in answer.degraded and not isinstance(call.prompt, str | TokenIds):
            call = adapt_to_text(call, call.prompt)
        self._opens_thoughts = self._opens_thoughts or any(map(answers.closes_thought, answer.choices))
        gens = [self._parse(choice, call, asked, answer) for choice in answer.choices[: call.n]]
        if call.control and not gens[0].control:
            raise LLMError(f"{self.name} {NO_CONTROL}")
        if any(generated_tokens(choice.get("logprobs")) for choice in answer.choices):
            self._has_returned_logprobs = True
        elif call.logprobs and not self._has_returned_logprobs and any(map(answers.has_text, answer.choices)):
            self._has_logprobs = False
        n_read, n_written = answer.tokens
        one_by_one = (f"{len(gens)} of {call.n} texts in one answer: the others are requested one by one",)
        jobs = [self._draws.submit(self._send, single(asked, number)) for number in range(len(gens), call.n)]
        for more in (job.result() for job in jobs):
            gens.append(self._parse(more.choices[0], call, asked, more._replace(degraded=more.degraded + one_by_one)))
            n_read, n_written = n_read + more.tokens[0], n_written + more.tokens[1]
        reply = Reply(tuple(end_turn(gen, call.prompt) for gen in gens), n_read, n_written, answer.model)
        return reply, any(gen.reasoning is not None for gen in gens)

    def _parse(self, choice: dict[str, Any], call: Generate, asked: Generate, answer: answers.Answer) -> Gen:
        """Parse a text of a call as it was asked. Thoughts that the endpoint counts but hides are an empty text."""
        gen = answers.parse_gen(choice, call, answer.degraded, is_open=self._opens_thoughts)
        if asked.decoding.max_tokens > call.decoding.max_tokens:
            gen = limit_answer(gen, call.decoding.max_tokens, self.truncate)
        return dataclasses.replace(gen, reasoning="") if gen.reasoning is None and answer.hidden_tokens else gen

    def _yes_no(self, call: AskYesNo) -> Reply:
        n_read = n_written = 0
        if self._has_logprobs and "logprobs" not in self._lacks.fields and not self._thinks:
            answer = self._send_yes_no(call)
            n_read, n_written = answer.tokens
            yes_no = answers.parse_yes_no(answer.choices[0], call, answer.degraded)
            if answers.begins_thought(answer.choices[0]) and (yes_no is None or yes_no.mass < LOW_MASS):
                self._thinks, yes_no = True, None
            if yes_no:
                self._has_returned_logprobs = True
                return Reply(yes_no, n_read, n_written, answer.model)
            # An answer without text has no logprobs either.
            if not self._has_returned_logprobs and not self._thinks and answers.has_text(answer.choices[0]):
                self._has_logprobs = False
        word = Generate(prompt=call.prompt, role=call.role, decoding=Decoding(max_tokens=_WORD_TOKENS))
        reply = self._generate(dataclasses.replace(word, decoding=dataclasses.replace(word.decoding, thinking="off")))
        gen: Gen = reply.result[0]  # type: ignore[index]
        yes_no = yes_no_from_word(gen.text, call.positive, call.negative, degraded=(*gen.degraded, BY_WORD))
        return Reply(yes_no, n_read + reply.prompt_tokens, n_written + reply.completion_tokens, reply.model)

    def _send_yes_no(self, call: AskYesNo) -> answers.Answer:
        """Send a yes/no question. If the model begins with white space, ask again for more tokens, and for as many from then on."""
        n_tokens = self._answer_tokens
        answer = self._send(call)
        if n_tokens == 1 and answers.begins_blank(answer.choices[0]):
            self._answer_tokens = 1 + MAX_BLANKS
            return self._send(call)
        return answer

    def _mix(self, call: Mix) -> Reply:
        """Generate token by token: each prompt is sent with the text so far, and the likeliest token of the mean is appended."""
        mixture = Mixture(call)
        n_read, n_written, model = 0, 0, ""
        while mixture.finish is None:
            asked = [AskYesNo(prompt=prompt, role=call.role) for prompt in mixture.prompts()]  # one token, with the likeliest others
            jobs = [self._draws.submit(self._send, each) for each in asked]
            sent = [job.result() for job in jobs]
            if not mixture.append([answer.choices[0] for answer in sent]):
                raise LLMError(f"{self.name} {NO_MIX}")
            mixture.degraded |= dict.fromkeys(note for answer in sent for note in answer.degraded)
            n_read += sum(answer.tokens[0] for answer in sent)
            n_written, model = n_written + 1, sent[0].model
        return Reply((end_turn(mixture.gen(), call.prompt),), n_read, n_written, model)

    def _nll(self, call: MeanNll) -> Reply:
        prompt, degraded = call.prompt, tuple[str, ...]()
        if not isinstance(prompt, str | TokenIds) and self._lacks.chat:
            call = adapt_to_text(call, prompt)
            prompt, degraded = as_text(prompt), (NO_TEMPLATE,)
        unknown = Reply(Nll(total=None, n_tokens=0, degraded=(NO_PROMPT_LOGPROBS,)))
        ids = self._ids_to_score(prompt, call.continuation)
        if self._lacks.completions or not self._has_echo or (ids is None and not isinstance(prompt, str)):
            return unknown  # mostly, only the endpoint knows the chat template
        if not call.continuation:
            return Reply(Nll(total=0.0, n_tokens=0, degraded=degraded))
        echoed = "" if ids else prompt_text(prompt)
        try:
            data = self._post(
                requests.build_ids_body([*ids[0], *ids[1]], self._model) if ids else requests.build_echo_body(call, echoed, self._model)
            )
        except Refused as error:
            if error.refusal.means("too_long"):
                raise PromptTooLong(f"{error}; a text that is scored is not cut: shorten it") from error
            self._has_echo = False
            return unknown
        answer = answers.Answer(data, degraded).with_counts(prompt_text(prompt) + call.continuation, self._tokens.count_prompt)
        choice = answer.choices[0]
        scored = answers.parse_ids_nll(choice, ids[1]) if ids else answers.parse_echo_nll(choice, call, echoed)
        if scored is None:
            self._has_echo = False
            return unknown
        return Reply(Nll(total=scored[0], n_tokens=scored[1], degraded=answer.degraded), answer.tokens[0], 0, answer.model)

    def _ids_to_score(self, prompt: Prompt, continuation: str) -> tuple[list[int], list[int]] | None:
        """Return the ids of a prompt and of the text after it, if the server scores ids."""
        before = self._tokens.split_prompt(prompt, self._dialect.no_thinking) if self._dialect.scores_ids and continuation else None
        after = None if before is None else self._tokens.split(continuation)
        return (before, after) if before and after else None

    def _send(self, call: Generate | AskYesNo) -> answers.Answer:
        """Send a call, and adapt it after each refusal until the endpoint accepts it."""
        n_generated = call.decoding.max_tokens if isinstance(call, Generate) else self._answer_tokens
        self._tokens.compare(call.prompt)
        budget = None if self._tokens.context is None else self._tokens.context - n_generated
        last_refusal: Refused | None = None
        folds = self._lacks.folds
        while True:
            if isinstance(call, Generate) and self._lacks.n is not None and call.n > self._lacks.n:
                call = single(call, 0)
            try:
                fitted = fit(call.prompt, budget, self._tokens.count_prompt)
            except PromptTooLong as error:
                if last_refusal is None:
                    raise
                raise PromptTooLong(f"{last_refusal}; nothing more can be cut: shorten the question or the demonstrations") from error
            sent, adapted = self._adapt_call(dataclasses.replace(call, prompt=fitted.prompt), folds)
            full_body = requests.build_body(sent, self._model, self._dialect, answer_tokens=self._answer_tokens)
            body = requests.extend(self._lacks.strip(full_body), self._options.extra_body)
            try:
                with self._slots:
                    data = self._post(body)
            except Refused as error:
                last_refusal = error
                if error.refusal.means("too_long"):
                    budget = self._tokens.shorter_budget(error.refusal, fitted.prompt, n_generated=_n_generated(body), budget=budget)
                else:
                    folds = self._adapt(error, body, fitted.prompt, folds)
                continue
            notes = (*adapted, *fitted.degraded, *requests.describe_fallbacks(sent, self._dialect, full_body, body))
            if "stream" in body and not data.get("usage"):
                self._lacks.fields.add("stream")  # some servers count tokens in whole answers only
            self._lacks.folds |= folds  # learned only from an accepted request
            self._learn_context()
            return answers.Answer(data, notes).with_counts(sent.prompt, self._tokens.count_prompt)

    def _post(self, body: Body) -> dict[str, Any]:
        path = "/chat/completions" if "messages" in body else "/completions"
        return self._connection.post(path, body, cancels=self._dialect.cancels)

    def _learn_context(self) -> None:
        """Ask Ollama, after its first answer, for the context with which it has loaded the model: it cuts longer prompts silently."""
        if self._dialect is OLLAMA and self._tokens.context is None and not self._is_context_asked:
            self._is_context_asked = True
            self._tokens.context = own_limits(OLLAMA, self._connection, self._model)[0]

    def _adapt_call(self, call: Generate | AskYesNo, folds: frozenset[Fold]) -> tuple[Generate | AskYesNo, tuple[str, ...]]:
        """Return a call with its prompt in a form that the endpoint supports, and the fallbacks used."""
        prompt, notes = call.prompt, tuple[str, ...]()
        if isinstance(prompt, str | TokenIds):
            if isinstance(prompt, str) and self._lacks.completions:
                prompt, notes = (Message("user", prompt),), (_ONLY_CHAT,)
        elif not self._lacks.chat:
            prompt, notes = fold_turns(prompt, folds)
        else:
            call = adapt_to_text(call, prompt)
            prompt, notes = as_text(prompt), (NO_TEMPLATE,)
        return dataclasses.replace(call, prompt=prompt), notes

    def _adapt(self, error: Refused, body: Body, prompt: Prompt, folds: frozenset[Fold]) -> frozenset[Fold]:
        """Learn from a refusal for another reason than the prompt's length, and return the changes of turns of the next attempt.

        Raises:
            Refused: the refusal is final.
        """
        refusal = error.refusal
        if refusal.means("no_model"):
            names = get_close_matches(self._model, [model["id"] for model in self._connection.models() if model.get("id")], n=5, cutoff=0)
            raise Refused(f"{error}: it serves {', '.join(names)}", refusal) if names else error
        name, chat = refusal.refused_parameter(body), () if isinstance(prompt, str | TokenIds) else prompt
        if name is not None and name not in self._options.extra_body:
            self._lacks.learn_field(name, body, refusal.message)
        elif name is None and chat and "messages" in body and refusal.turns and (fold := next_fold(chat, folds, refusal.turns)):
            return folds | {fold}
        elif name is not None or not (refusal.is_about_api and self._lacks.learn_api(body)):
            raise error
        return folds


def _n_generated(body: Body) -> int:
    n_tokens: int = body.get("max_tokens") or body.get("max_completion_tokens") or 1
    return n_tokens
