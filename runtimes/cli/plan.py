"""``idx plan``: time, memory and disk of a corpus on GPUs of given types, with the arithmetic."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from . import completion
from .build import Corpus, Kinds
from .screen import pluralize, print_json, print_line

if TYPE_CHECKING:
    from wikidx.indexer.card_plan import Stage

_WIDTHS = (26, 10, 10, 10, 10)


def plan(
    corpus: Corpus,
    encoder: Annotated[str, typer.Option(metavar="NAME", help="Encoder of the vectors.", autocompletion=completion.encoder)],
    gpus: Annotated[str, typer.Option(metavar="NxGPU", help="Number and type of the GPUs, such as 1xH100 or 4xA10.")],
    kind: Kinds = None,
    reranker: Annotated[str | None, typer.Option(metavar="NAME", help="A reranker beside the index; see 'idx search --help'.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Plan for the first N passages only.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print what a corpus takes on given GPUs, with the arithmetic."""
    from wikidx.corpora.build import StoreOptions
    from wikidx.corpora.known.custom import ReadOptions
    from wikidx.corpora.resolving import resolve
    from wikidx.indexer.card_plan import plan_on_cards
    from wikidx.indexer.cards import parse_cards
    from wikidx.indexer.encoders.recipes import RecipeOptions
    from wikidx.indexer.planning import BuildSpec
    from wikidx.retrievers.rerankers.opening import planned_demand

    from .build import index_names

    n_cards, card = parse_cards(gpus)
    names = ["bm25", *index_names([encoder], kind or [], RecipeOptions(), force=False)]
    beside = planned_demand(reranker) if reranker is not None else None
    spec = BuildSpec(resolve(corpus, name=None, options=StoreOptions(limit=limit), reading=ReadOptions()), tuple(names))
    planned = plan_on_cards(spec, n_cards, card, [beside] if beside is not None else [])
    if as_json:
        print_json(dataclasses.asdict(planned))
        return
    print_line(f"'{planned.corpus}': about {pluralize(planned.n_passages, 'passage')}, on {n_cards} × {card}")
    print_line(_row("stage", "time", "memory", "each GPU", "disk"))
    for number, stage in enumerate(planned.stages, 1):
        _show(number, stage)
    print_line()
    for number, stage in enumerate(planned.stages, 1):
        print_line(f"{number:>2}  {stage.arithmetic}")
    print_line()
    print_line("Times on a GPU are computed from its maker's data sheet and the assumptions above; none was measured.")


def _show(number: int, stage: Stage) -> None:
    from wikidx.base.progress import format_bytes
    from wikidx.base.progress_display import format_duration

    time_s = "–" if stage.time_s is None else f"{stage.time_s * 1e3:.1f} ms" if stage.time_s < 1 else format_duration(stage.time_s)
    sizes = (format_bytes(n_bytes) if n_bytes else "–" for n_bytes in (stage.host_bytes, stage.card_bytes, stage.disk_bytes))
    print_line(_row(f"{number:>2} {stage.stage}", time_s, *sizes))
    if stage.obstacle:
        print_line(f"   does not fit: {stage.obstacle}")


def _row(*cells: str) -> str:
    return cells[0].ljust(_WIDTHS[0]) + "".join(cell.rjust(width) for cell, width in zip(cells[1:], _WIDTHS[1:], strict=True))
