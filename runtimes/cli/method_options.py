"""Options of the commands that run methods: method, models, search target, resumption."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from . import completion
from .screen import note

if TYPE_CHECKING:
    from wikidx.runtimes.execution.opening import Plan, SearchTarget
    from wikidx.runtimes.methods.base import Method
    from wikidx.runtimes.questions import Question

Options = TypeVar("Options", bound="ModelOptions")

METHOD = typer.Argument(
    metavar="METHOD",
    help="A method, such as direct, rag or ra_isf; 'idx ask' lists them, 'idx ask METHOD' explains one.",
    autocompletion=completion.method,
)
MethodName = Annotated[str, METHOD]
Search = Annotated[
    list[str] | None,
    typer.Option("--search", metavar="OPTION=VALUE", help="A search option, such as depth=50 or rerank=primary; may be repeated."),
]
Reranker = Annotated[str | None, typer.Option(help="The model of --search rerank=cross-encoder; default: simlm.")]
QueryDtype = Annotated[
    Literal["float32", "float16", "bfloat16"] | None,
    typer.Option(help="Precision in which queries are encoded; default: by the encoder's size and the device."),
]
Device = Annotated[str, typer.Option(help="Device of encoders, rerankers and indexes: auto, cpu, cuda, cuda:0,1, all (GPUs), mps.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Cache = Annotated[Path | None, typer.Option(help="The file of cached replies; default: replies.sqlite in the output folder.")]
InFlight = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of questions answered concurrently; does not affect the results; default: 16 with a model on this machine's CPU, "
        "four for each concurrent call of an endpoint, at least 64.",
    ),
]
Steps = Annotated[bool, typer.Option("--steps/--no-steps", help="Record every step of every question.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Retry failed questions.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the prompts without calling a model; placeholders replace all models except scripted ones.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Options of models and of the search target."""

    llm: Annotated[
        list[str] | None,
        typer.Option(
            "--llm",
            metavar="[ROLE=]BACKEND:MODEL[@URL]",
            help="A model for all roles, or for one role: openai:NAME@URL,URL…, hf:FOLDER, hf:FILE.gguf, vllm:NAME, scripted:FILE, "
            "FILE.py:BACKEND, or smollm2, which is embedded; may be repeated.",
        ),
    ] = None
    llm_option: Annotated[
        list[str] | None,
        typer.Option(
            "--llm-option",
            metavar="[ROLE.]NAME=VALUE",
            help="An option of the models that idx runs, such as dtype=bfloat16 (hf) or tensor_parallel_size=2 (vllm); may be repeated.",
        ),
    ] = None
    corpus: Annotated[str | None, completion.corpus_option("A built corpus; with --url, a corpus of that server.")] = None
    retriever: Annotated[
        str | None,
        completion.retriever_option(
            "An index as idx list names it, or several indexes joined with +; given: the passages that a file gives with its questions; "
            "default: bm25."
        ),
    ] = None
    search: Search = None
    reranker: Reranker = None
    url: Annotated[str | None, typer.Option(help="Search on the 'idx serve' server at this URL.")] = None
    api_key: Annotated[
        str | None, typer.Option(envvar="IDX_API_KEY", help="API key of the server at --url; endpoints use OPENAI_API_KEY.")
    ] = None
    search_timeout: Annotated[
        float, typer.Option(min=0.1, help="Maximum time until the server at --url has answered a batch of searches, in seconds.")
    ] = 60.0
    device: Annotated[str, typer.Option(help="Device of local models, encoders and indexes: auto, cpu, cuda, cuda:1, mps.")] = "auto"
    query_dtype: QueryDtype = None
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of concurrent requests to an endpoint; default: the number of its slots, at most 16."),
    ] = None
    timeout: Annotated[float, typer.Option(min=0.1, help="Maximum time until an endpoint begins its answer, in seconds.")] = 600.0
    token_timeout: Annotated[
        float, typer.Option(min=0.1, help="Maximum time from a token of an endpoint's answer to the next, in seconds.")
    ] = 120.0
    retries: Annotated[int, typer.Option(min=0, help="Maximum number of retries of a request to an endpoint.")] = 5
    thinking: Annotated[
        str, typer.Option(metavar="off|on|N", help="Whether models think before they answer; N: with at most N tokens.")
    ] = "off"
    extra_body: Annotated[
        list[str] | None,
        typer.Option(
            "--extra-body",
            metavar="NAME=VALUE",
            help="A field to add to every request to an endpoint; VALUE is JSON or text; may be repeated.",
        ),
    ] = None
    context: Annotated[
        int | None, typer.Option(min=1, help="Context length of an endpoint's model in tokens, if the endpoint does not report it.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions(ModelOptions):
    """Options of a method, of its models and of its search target."""

    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="An option of the method; may be repeated.")
    ] = None
    prompts: Annotated[
        str | None,
        typer.Option(
            metavar="SET|FOLDER",
            help="A prompt set of the method, such as paper (ra_isf), or a folder with files that replace the method's prompts and "
            "demonstrations of the same names; 'idx ask METHOD' lists both.",
        ),
    ] = None
    shots_from: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Training questions, from which as many demonstrations are drawn as --set shots=N says."),
    ] = None
    shots_seed: Annotated[int, typer.Option(min=0, help="Random seed of --shots-from.")] = 0
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="[METHOD/]PRESET",
            help="Corpus, retriever and search options of the method's paper or, as in retrorag/default, of another's; other options "
            "override them.",
        ),
    ] = None


def choose_model(options: Options, roles: Collection[str], *, dry_run: bool) -> Options:
    """Return the options with the embedded model, which a line announces, if they name no model and there are roles for one.

    Raises:
        InputError: no model is named, and the embedded one is not installed.
    """
    if options.llm or dry_run or not roles:
        return options
    from wikidx.base.errors import InputError
    from wikidx.runtimes.llms.embedded import DEFAULT, EMBEDDED, embedded_file

    try:
        embedded_file(DEFAULT)
    except InputError as error:
        raise InputError(f"no --llm names a model, such as openai:qwen@http://127.0.0.1:8001/v1, and {error}") from None
    note(f"no --llm: answers come from the embedded {EMBEDDED[DEFAULT].title}, a very small model")
    return dataclasses.replace(options, llm=[DEFAULT])


def make_plan(
    method: Method,
    options: PlanOptions,
    *,
    dry_run: bool,
    base: Mapping[str, Any] | None = None,
    questions: Sequence[Question] | None = None,
) -> Plan:
    """Return the plan of a run, after checking it without opening models or indexes.

    ``base`` maps options of the method to values that replace their defaults; ``questions`` are those of ``--retriever given``, with their
    passages.

    Raises:
        InputError, UnknownNameError, ArtifactMissing: an option names something that does not exist, or options contradict each other.
    """
    from wikidx.base.machine.devices import check_device
    from wikidx.corpora.resolving import require_built
    from wikidx.runtimes.assignments import parse_assignments
    from wikidx.runtimes.execution.opening import Plan
    from wikidx.runtimes.llms.options import ConnectionOptions, parse_extra_body, parse_thinking
    from wikidx.runtimes.methods.base import RENAMED

    target = _search_target(method, options, questions)
    check_device(options.device)
    method_options = parse_assignments(method.options, options.assignments or (), noun="option", base=base, renamed=RENAMED)
    plan = Plan(
        method=replace_prompts(method, options, method_options),
        options=method_options,
        llms=options.llm or (),
        llm_options=options.llm_option or (),
        target=target,
        connection=ConnectionOptions(
            concurrency=options.concurrency,
            timeout=options.timeout,
            token_timeout=options.token_timeout,
            retries=options.retries,
            context=options.context,
            extra_body=parse_extra_body(options.extra_body or ()),
        ),
        device=options.device,
        query_dtype=options.query_dtype,
        thinking=parse_thinking(options.thinking),
        is_dry=dry_run,
    )
    plan.check()
    if target is not None and target.corpus and target.url is None:
        require_built(target.corpus)
    return plan


def _search_target(method: Method, options: PlanOptions, questions: Sequence[Question] | None) -> SearchTarget | None:
    from wikidx.retrievers.rerankers import reranker_name
    from wikidx.runtimes.execution.given import GIVEN
    from wikidx.runtimes.execution.opening import SearchTarget, given_target, resolve_target

    named = SearchTarget(
        corpus=options.corpus or "",
        retriever=options.retriever or "",
        url=options.url,
        api_key=options.api_key,
        timeout=options.search_timeout,
        reranker=options.reranker and reranker_name(options.reranker),
    )
    if options.retriever == GIVEN:
        return given_target(questions, named, {"--preset": options.preset, "--search": options.search})
    return resolve_target(method, options.preset, named, options.search or ())


def replace_prompts(method: Method, options: PlanOptions, method_options: Any) -> Method:  # noqa: ANN401 - of any method
    """Return the method with the prompts that the options request, and with drawn demonstrations in the form of the method's options.

    Raises:
        InputError, UnknownNameError: the prompts do not suit the method, or too few questions have answers.
    """
    from wikidx.base.errors import InputError
    from wikidx.runtimes.methods.forms import SHORT, gold_answer
    from wikidx.runtimes.methods.prompt_sets import read_prompt_set, with_prompts
    from wikidx.runtimes.questions import find_questions, sample

    n_shots, form = getattr(method_options, "shots", 0), getattr(method_options, "form", SHORT)
    if options.prompts is None and options.shots_from is None:
        return method
    files = {} if options.prompts is None else read_prompt_set(method.name, options.prompts, method.parts)
    answered = [] if options.shots_from is None else [item for item in find_questions(options.shots_from) if item.golden_answers]
    if options.shots_from is not None and len(answered) < max(n_shots, 1):
        raise InputError(
            f"{options.shots_from} has {len(answered)} questions with answers, not {max(n_shots, 1)}: ask for fewer demonstrations"
        )
    drawn = sample(answered, n_shots, options.shots_seed) if n_shots and answered else answered[:1]
    return with_prompts(method, files, [(item.text, gold_answer(item, form)) for item in drawn])


@contextlib.contextmanager
def exit_on_interrupt(advice: str = "") -> Iterator[None]:
    """Exit with status 130 and a line of advice on Ctrl-C, after closing the enclosed contexts, without waiting for pending model calls."""
    try:
        yield
    except KeyboardInterrupt:
        if advice:
            note(advice)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
