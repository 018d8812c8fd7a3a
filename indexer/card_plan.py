"""Plan of a corpus on GPUs of given types: time, memory and disk of each stage, with the arithmetic. It needs neither a GPU nor torch.

The stages on processors are those of ``estimate``; embedding is ``estimate.scale_measurement`` of a rate that follows from a data sheet.
Times on a GPU are computed, and none was measured. The fractions of a data sheet's rates that are reached are assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wikidx.base.errors import InputError
from wikidx.base.machine.placement import CUDA_BYTES, Card, Demand, place
from wikidx.base.progress import format_bytes
from wikidx.corpora.build import open_store
from wikidx.corpora.estimate import CorpusEstimate, estimate_corpus, estimate_from_store

from .cards import CARDS, CardType
from .catalog import index_ref
from .embedding.embed import resolve_resources
from .embedding.options import EmbedOptions
from .encoders.model import LARGE
from .encoders.network_size import DTYPE_BYTES, NetworkSize, published_size
from .encoders.spec import Dtype, EncoderSpec
from .estimate import Measurement, StepEstimate, count_tokens, estimate_index, estimate_store, scale_measurement
from .indexes.exact.placement import WORK_BYTES, VectorsSize
from .indexes.faiss import gpu as faiss_gpu
from .indexes.faiss.ivf import n_lists, n_subquantizers
from .naming import encoder_spec, parse_index_name
from .planning import BuildSpec

_NETWORK_RATE = 0.35  # of a data sheet's products per second, in the forward pass of an encoder; assumed
_PRODUCT_RATE = 0.6  # the same, in the products of exact search; assumed
_BANDWIDTH = 0.83  # of a data sheet's memory bandwidth; assumed
_TOKENIZED_PER_S = 325_000  # tokens per second of a processor; measured on one core in 2026
_TOKENIZING = 7  # processes that tokenise for each GPU; assumed
_DOWNLOADED_PER_S, _LOADED_PER_S = 50e6, 2e9  # bytes per second of a network, and from a disk to a GPU; assumed
_PROCESS_BYTES = 3e9  # memory of a process with torch, besides a network's weights; assumed
_BATCH, _LARGE_BATCH = 1, 1_024  # queries that are searched together
_MOST_CARDS = 64  # to be named as an alternative


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a plan.

    Attributes:
        stage: name of the stage.
        time_s: duration; None: unknown, or none.
        host_bytes: memory of the machine; None: unknown.
        card_bytes: memory of each GPU that the stage uses; 0: it uses none.
        disk_bytes: size on disk.
        arithmetic: derivation of the figures, in one line.
        obstacle: reason for which the stage does not fit on the GPUs, and alternatives; None: it fits.
    """

    stage: str
    time_s: float | None
    host_bytes: float | None
    card_bytes: float
    disk_bytes: float
    arithmetic: str
    obstacle: str | None = None


@dataclass(frozen=True, slots=True)
class CardPlan:
    """A plan of a corpus on GPUs: the cards, and the stages in their order."""

    corpus: str
    n_passages: int
    n_cards: int
    card: str
    stages: list[Stage]


def plan_on_cards(spec: BuildSpec, n_cards: int, card: str, networks: Sequence[Demand] = ()) -> CardPlan:
    """Plan all stages from the download to searches, whatever is built on this machine.

    Args:
        spec: the corpus and its indexes, among them exactly one encoder.
        n_cards: number of GPUs.
        card: a name in ``CARDS``.
        networks: networks besides the encoder that a search uses, such as a reranker.

    Raises:
        InputError: there is not one encoder, or the size of its network is unknown.
        MissingExtraError: a package is missing.
    """
    encoders = list(dict.fromkeys(filter(None, (parse_index_name(name).encoder for name in spec.indexes))))
    if len(encoders) != 1:
        raise InputError("a plan is for one encoder: name one with --encoder")
    encoder, existing = encoder_spec(encoders[0]), spec.reusable_store()
    corpus = estimate_corpus(spec.source.corpus, spec.source.options) if existing is None else estimate_from_store(open_store(spec.name))
    size = published_size(encoder.name, encoder.passage_checkpoint) if not encoder.is_served else None
    if size is None:
        raise InputError(f"the size of '{encoder.name}' is not known here: name it by the folder of its checkpoint")
    cards, type_ = [Card(number, round(CARDS[card].memory_bytes - CUDA_BYTES)) for number in range(n_cards)], CARDS[card]
    stages = list(_stages_on_processors(spec, corpus))
    n_over_vectors = sum(bool(name.encoder and name.kind) for name in map(parse_index_name, spec.indexes))
    stages.insert(len(stages) - n_over_vectors, _embedding(corpus, encoder, size, cards, type_))
    dtype: Dtype = "bfloat16" if size.n_weights > LARGE else "float32"
    encoding = size.demand(f"the encoder '{encoder.name}'", n_tokens=16_384, width=encoder.max_query_tokens, dtype=dtype)
    for name in spec.indexes:
        if parse_index_name(name).encoder:
            stages += _searching(name, VectorsSize(corpus.n_passages, encoder.dim, "float16"), [encoding, *networks], cards, type_)
    return CardPlan(spec.name, corpus.n_passages, n_cards, card, stages)


def _stages_on_processors(spec: BuildSpec, corpus: CorpusEstimate) -> Iterator[Stage]:
    """Yield the stages that use no GPU, by the estimates of ``idx build --dry-run``."""
    n_bytes = corpus.n_passages * corpus.passage_bytes
    text = f"{corpus.n_passages:,} passages × {corpus.passage_bytes:.0f} B = {format_bytes(n_bytes)} of text"
    if corpus.download_bytes:
        download, rate = corpus.download_bytes, format_bytes(_DOWNLOADED_PER_S)
        yield Stage("download", download / _DOWNLOADED_PER_S, None, 0, download, f"{format_bytes(download)} ÷ {rate}/s (assumed)")
    following = spec.expected_following(corpus)
    store = estimate_store(corpus.n_passages, corpus.passage_bytes, is_followed=following is not None)
    yield _stage(store, f"{text}; as idx build --dry-run")
    for name in spec.indexes:
        index = parse_index_name(name)
        if index.kind or not index.encoder:
            source = f"{corpus.n_passages:,} vectors × {encoder_spec(index.encoder).dim} components" if index.encoder else text
            ref, has_followed = index_ref(spec.name, name), name == following
            estimate = estimate_index(ref, corpus.n_passages, corpus.passage_bytes, has_followed=has_followed)
            yield _stage(estimate, f"{source}; on this machine's processors, as idx build --dry-run")


def _stage(estimate: StepEstimate, arithmetic: str) -> Stage:
    return Stage(estimate.step, estimate.time_s, estimate.memory_bytes, 0, estimate.disk_bytes, arithmetic)


def _embedding(corpus: CorpusEstimate, spec: EncoderSpec, size: NetworkSize, cards: Sequence[Card], card: CardType) -> Stage:
    """Return the stage that embeds the passages on all GPUs."""
    resources = resolve_resources(EmbedOptions(device="cuda"), spec)._replace(devices=("cuda",) * len(cards), n_tokenizing=_TOKENIZING)
    n_tokens, n_truncated = count_tokens(corpus, spec, encoder_spec("minilm"))
    width, dtype = n_tokens / corpus.n_passages, resources.precision.computed
    flops = size.token_flops(width)
    token_s = max(flops / (card.flops * _NETWORK_RATE), 1 / (_TOKENIZED_PER_S * _TOKENIZING))
    weight_bytes = size.n_weights * DTYPE_BYTES[dtype]
    measurement = Measurement(token_s, spec.truncate_dim or spec.dim, round(_PROCESS_BYTES + weight_bytes))
    estimate = scale_measurement(spec, resources, measurement, corpus.n_passages, n_tokens, n_truncated)
    batch = size.forward_bytes(resources.batch_tokens, spec.max_passage_tokens, dtype)
    demand = Demand(f"the encoder '{spec.name}'", weight_bytes + batch + CUDA_BYTES)
    weights, memory, cuda = (format_bytes(n_bytes) for n_bytes in (weight_bytes, batch, CUDA_BYTES))
    arithmetic = (
        f"{corpus.n_passages:,} passages × {width:.0f} tokens × {flops / 1e6:.0f} MFLOP ÷ ({len(cards)} × {card.flops / 1e12:.0f} TFLOP/s "
        f"× {_NETWORK_RATE:g}, assumed); {weights} of weights + {memory} for {resources.batch_tokens:,} tokens + {cuda} of CUDA; "
        f"{_TOKENIZING} processes tokenise for each GPU"
    )
    fits = place(None, [demand], cards) is not None
    obstacle = (
        None if fits else f"{format_bytes(demand.n_bytes)} are needed, {format_bytes(cards[0].free)} are free: smaller --batch-tokens"
    )
    return Stage(
        f"embedding {spec.name}", estimate.time_s, estimate.memory_bytes, demand.n_bytes, estimate.disk_bytes, arithmetic, obstacle
    )


def _searching(name: str, vectors: VectorsSize, networks: Sequence[Demand], cards: Sequence[Card], card: CardType) -> Iterator[Stage]:
    """Yield the opening of an index with the networks beside it, and for exact search the search of batches, or their obstacle."""
    kind = parse_index_name(name).kind
    load = index_demand(kind, vectors)
    if load is None or not card.searches:
        why = "its kind is searched on processors" if card.searches else "AMD's GPUs are not used for searches"
        yield Stage(f"search {name}", None, None, 0, 0, f"{why}; 'idx check --recall' measures it")
        return
    allocation = place(load, networks, cards)
    n_gpus = len(allocation.vectors) if allocation else len(cards)
    beside = " + ".join(f"{network.name} {format_bytes(network.n_bytes)}" for network in networks)
    each = f"{format_bytes(load.divided_bytes)} ÷ {n_gpus} + {format_bytes(load.n_bytes)} to work in"
    largest = load.on_each(n_gpus) + (sum(network.n_bytes for network in networks) if n_gpus == 1 else 0)
    obstacle = None if allocation else _obstacle(load, networks, cards, kind)
    time_s = None if obstacle else load.divided_bytes / _LOADED_PER_S
    arithmetic = f"{each}, beside it {beside}; {format_bytes(load.divided_bytes)} ÷ {format_bytes(_LOADED_PER_S)}/s (assumed)"
    yield Stage(f"open {name}", time_s, None, largest, 0, arithmetic, obstacle)
    for n_queries in () if kind or obstacle else (_BATCH, _LARGE_BATCH):
        reading = load.divided_bytes / n_gpus / (card.bytes_per_s * _BANDWIDTH)
        products = 2 * vectors.n_rows * vectors.dim * n_queries / n_gpus / (card.flops * _PRODUCT_RATE)
        scores = 8 * vectors.n_rows * n_queries / n_gpus / (card.bytes_per_s * _BANDWIDTH)  # written and read
        derived = (
            f"the longer of {reading * 1e3:.1f} ms of reading and {products * 1e3:.1f} ms of products, and {scores * 1e3:.1f} ms of scores "
            f"({card.bytes_per_s / 1e9:,.0f} GB/s × {_BANDWIDTH:g}, {card.flops / 1e12:.0f} TFLOP/s × {_PRODUCT_RATE:g})"
        )
        yield Stage(f"search {n_queries:,} at a time", max(reading, products) + scores, None, largest, 0, derived)


def index_demand(kind: str, vectors: VectorsSize) -> Demand | None:
    """Return the memory of an index on GPUs; None if its kind is searched on processors only."""
    if not kind:
        return Demand("vectors", WORK_BYTES, vectors.n_bytes)
    if kind not in ("ivf", "ivfpq"):
        return None
    code_bytes = 2 * vectors.dim if kind == "ivf" else -(-n_subquantizers(vectors.dim) // 2)
    lists = n_lists(vectors.n_rows)
    return Demand(kind, faiss_gpu.WORK_BYTES, faiss_gpu.list_bytes([-(-vectors.n_rows // lists)] * lists, code_bytes))


def _obstacle(load: Demand, networks: Sequence[Demand], cards: Sequence[Card], kind: str) -> str:
    """Return how much is missing, and the number of such GPUs or the kind of index that would do."""
    more = [Card(number, cards[0].free) for number in range(_MOST_CARDS)]
    beside = sum(network.n_bytes for network in networks)
    enough = next((n for n in range(len(cards) + 1, _MOST_CARDS + 1) if load.on_each(n) + beside <= more[0].free), None)
    remedies = [f"{enough} such GPUs"] if enough else []
    remedies += [] if kind == "ivfpq" else ["--kind ivfpq"]
    needed = f"{format_bytes(load.on_each(len(cards)) + beside)} are needed on a GPU, {format_bytes(cards[0].free)} are free"
    return f"{needed}: {' or '.join([*remedies, 'search on processors'])}"
