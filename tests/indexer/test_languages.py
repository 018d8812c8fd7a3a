from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import pytest

from tests.conftest import ROOT
from wikidx.corpora.build import StoreOptions
from wikidx.corpora.known.python_values import given_corpus
from wikidx.corpora.resolving import ResolvedCorpus
from wikidx.indexer.analysis.languages import foreign_language
from wikidx.indexer.build_spec import BuildSpec
from wikidx.indexer.planning import Build, plan

GERMAN = (
    "Die Donau ist mit einer Länge von fast dreitausend Kilometern der zweitlängste Fluss in Europa. Der Strom entwässert weite Teile von "
    "Süd- und Osteuropa. Als internationaler Fluss durchfließt sie heute zehn Länder und ist damit der Fluss, der durch die meisten Länder "
    "fließt. Sie wird nach dem Zusammenfluss der Quellflüsse so genannt, und auf dem Weg zum Meer nimmt sie viele andere Flüsse auf. Auch "
    "die Städte an ihr haben eine lange Geschichte, von der nicht alles bekannt ist, weil es aus der frühen Zeit wenig gibt."
)
FRENCH = (
    "La Seine est un fleuve qui coule dans le nord de la France et qui traverse Paris avant de se jeter dans la Manche. Elle prend sa "
    "source sur le plateau de Langres et son cours est plus long que celui de la plupart des rivières du pays. Les villes que le fleuve "
    "relie sont nombreuses, et il sert depuis des siècles au transport des marchandises par bateau avec une grande régularité, pour les "
    "habitants."
)
RUSSIAN = "Волга берёт начало на Валдайской возвышенности и впадает в Каспийское море. Это самая длинная река Европы."
SCRIPTS = {
    RUSSIAN: "Cyrillic",
    "Ο Όλυμπος είναι το ψηλότερο βουνό της Ελλάδας και βρίσκεται ανάμεσα στη Θεσσαλία και τη Μακεδονία": "Greek",
    "黄山位于安徽省南部,是中国著名的风景区,以奇松怪石云海温泉四绝闻名于世,每年吸引大量游客前来观光旅游": "Chinese or Japanese",
    "富士山は静岡県と山梨県に跨る活火山であり、その美しさはさまざまな作品のなかで語られてきたのであった。": "Japanese",
    "한라산은 제주도에 있는 산으로 높이는 천구백사십칠 미터이며 대한민국에서 가장 높은 산이다 그리고 국립공원으로 지정되었다": "Korean",
}


@pytest.mark.parametrize(("text", "expected"), [(GERMAN, "German"), (FRENCH, "French"), *SCRIPTS.items()])
def test_language_of_texts(text: str, expected: str) -> None:
    assert foreign_language([text]) == foreign_language(text.splitlines() * 5_000) == expected


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        ["42"],
        ["Donau"],
        ["der Fluss"],
        [RUSSIAN[:30]],
        ["fox"] * 1_000,
        ["der die das"],
        ["α = β + γ, where Ω is open"] * 50,
        ["水"] * 9,
    ],
    ids=repr,
)
def test_nothing_is_said_of_texts_that_are_short_or_say_little(texts: list[str]) -> None:
    assert foreign_language(texts) == ""


def test_code_is_no_language() -> None:
    for pattern in ("retrievers/*.py", "retrievers/server/page/*.js", "*.toml", "docs/how-to/*.md"):
        texts = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(pattern))]
        assert len(texts) > 0
        assert foreign_language(texts) == ""


@pytest.mark.parametrize(
    "name", ["cacm/cacm.json.gz", "wiki_intro/passages.jsonl.gz", "dpr_union/passages.jsonl.gz", "wikiextractor/wiki_00.gz"]
)
def test_english_corpora_raise_no_alarm(shared_data: Path, name: str) -> None:
    with gzip.open(shared_data / name, "rt", encoding="utf-8") as file:
        lines = list(itertools.islice(file, 2_000))
    assert foreign_language(lines) == ""


def test_build_warns_of_english_bm25_alone(home: Path) -> None:
    resolved = ResolvedCorpus(given_corpus([GERMAN, FRENCH, GERMAN], "fluss"), StoreOptions())
    (note,) = plan(BuildSpec(resolved)).notes
    assert note.startswith("the passages look German, and 'bm25' analyses English: it knows no other endings and stop words")
    assert "scores are exact" in note
    assert plan(BuildSpec(resolved, ("minilm",))).notes == []
    Build(BuildSpec(resolved)).run()
    assert plan(BuildSpec(resolved)).notes == []  # nothing is built any more
    assert (
        plan(BuildSpec(ResolvedCorpus(given_corpus([json.dumps(SCRIPTS)[:9], "The Danube flows."], "short"), StoreOptions()))).notes == []
    )
