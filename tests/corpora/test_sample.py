from __future__ import annotations

import re
import string

import pytest

from corpora import sample
from corpora.passage import Passage
from corpora.sample.tables import Row, table

KINDS = {
    "element": "elements",
    "planet": "planets",
    "moon": "moons",
    "country": "countries",
    "river": "rivers",
    "mountain": "mountains",
    "state": "states",
    "president": "presidents",
    "person": "scientists",
    "book": "books",
    "painting": "paintings",
    "composer": "composers",
    "invention": "inventions",
}

GOLDEN = [
    ("element-79", ["Au", "79", "aurum", "group 11"]),
    ("element-80", ["Hg", "liquid", "quicksilver"]),
    ("planet-saturn", ["Titan", "rings"]),
    ("moon-titan", ["Saturn", "1655", "Christiaan Huygens"]),
    ("country-fr", ["Paris", "euro", "Spain", "French"]),
    ("country-bt", ["Thimphu", "ngultrum", "China and India"]),
    ("river-nile", ["Mediterranean Sea", "Egypt", "Cairo"]),
    ("river-danube", ["Black Forest", "Black Sea", "Budapest"]),
    ("mountain-everest", ["8,849", "1953", "Tenzing Norgay"]),
    ("state-hi", ["Honolulu", "21 August 1959", "Barack Obama"]),
    ("president-16", ["Kentucky", "Republican", "James Buchanan", "Andrew Johnson"]),
    ("president-24", ["Grover Cleveland", "1893", "1897", "Benjamin Harrison", "William McKinley"]),
    ("person-curie", ["Warsaw", "1867", "1903 and 1911"]),
    ("book-don-quixote", ["Miguel de Cervantes", "1605", "Spanish"]),
    ("painting-guernica", ["Pablo Picasso", "1937", "Madrid"]),
    ("composer-mozart", ["Salzburg", "1756", "1791"]),
    ("invention-telephone", ["Alexander Graham Bell", "1876"]),
]


def texts() -> dict[str, str]:
    return {passage.id: passage.text for passage in sample.passages()}


def title_of(id_: str) -> str:
    return next(article.title for article in sample.articles() if article.id == id_)


def by(name: str, key: str) -> dict[str, Row]:
    return {row[key]: row for row in table(name)}


def test_there_are_600_to_1000_passages_with_ids_of_their_own() -> None:
    passages = list(sample.passages())
    assert 600 <= len(passages) <= 1000
    assert len({passage.id for passage in passages}) == len(passages)


def test_titles_are_distinct() -> None:
    titles = [article.title for article in sample.articles()]
    assert sorted(titles) == sorted(set(titles))


def test_passages_are_prose_of_at_most_100_words_and_rarely_short() -> None:
    lengths = [len(passage.text.split()) for passage in sample.passages()]
    assert max(lengths) <= 100
    assert min(lengths) >= 25
    assert sum(length >= 60 for length in lengths) > 0.8 * len(lengths)


def test_every_row_of_every_table_becomes_one_article() -> None:
    ids = [article.id.split("-", 1)[0] for article in sample.articles()]
    assert {kind: ids.count(kind) for kind in KINDS} == {kind: len(table(name)) for kind, name in KINDS.items()}


def test_order_and_content_are_the_same_every_time() -> None:
    assert list(sample.passages()) == list(sample.passages())
    assert sample.content_sha256() == sample.content_sha256()
    assert re.fullmatch(r"[0-9a-f]{64}", sample.content_sha256())


def test_the_content_hash_notices_a_changed_word(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sample.content_sha256()
    changed = [*sample.articles()]
    changed[5] = Passage(changed[5].id, changed[5].title, changed[5].text.replace(" is ", " was ", 1))
    monkeypatch.setattr(sample, "articles", lambda: iter(changed))
    assert sample.content_sha256() != before


@pytest.mark.parametrize("mark", ["|", "\t", "\n", "  ", " .", " ,", "..", "()", "None", "{", "}", ", .", " the the "])
def test_no_seam_of_a_template_shows(mark: str) -> None:
    assert [article.id for article in sample.articles() if mark in article.text] == []


def test_sentences_open_with_a_capital_and_articles_end_with_a_stop() -> None:
    for article in sample.articles():
        assert not article.text[0].islower(), article.id
        assert article.text[-1] in ".!?)", article.id
        openings = re.findall(r"(?<=[a-z]{2}\. )[a-z]\w*", article.text)
        assert openings == [], article.id


@pytest.mark.parametrize(("id_", "facts"), GOLDEN)
def test_golden_facts(id_: str, facts: list[str]) -> None:
    text = texts()[f"{id_}#0"]
    assert [fact for fact in facts if fact not in text] == []


@pytest.mark.parametrize(
    ("id_", "title"),
    [
        ("element-80", "Mercury (element)"),
        ("planet-mercury", "Mercury (planet)"),
        ("state-ga", "Georgia (U.S. state)"),
        ("country-ge", "Georgia (country)"),
        ("country-nl", "Netherlands"),
        ("president-22", "Grover Cleveland (22nd president)"),
        ("president-47", "Donald Trump (47th president)"),
    ],
)
def test_titles_tell_namesakes_apart(id_: str, title: str) -> None:
    assert title_of(id_) == title


def test_questions_have_existing_evidence_with_the_answer_in_the_last_passage() -> None:
    known = texts()
    for question in sample.questions():
        assert set(question.gold_ids) <= known.keys(), question.id
        last = known[question.gold_ids[-1]].lower()
        assert question.answers, question.id
        assert question.answers[0].lower() in last, question.id


def test_questions_are_about_100_with_a_third_of_two_hops() -> None:
    questions = sample.questions()
    two = [question for question in questions if question.hops == 2]
    assert 90 <= len(questions) <= 120
    assert 0.3 <= len(two) / len(questions) <= 0.4
    assert all(len(question.gold_ids) == question.hops for question in questions)
    assert len({question.id for question in questions}) == len(questions)
    assert len({question.question for question in questions}) == len(questions)


def test_questions_do_not_give_their_answer_away() -> None:
    assert [q.id for q in sample.questions() if any(answer.lower() in q.question.lower() for answer in q.answers)] == []


def test_two_hop_answers_are_not_in_the_first_passage_alone() -> None:
    known = texts()
    leaks = [q.id for q in sample.questions() if q.hops == 2 and any(a.lower() in known[q.gold_ids[0]].lower() for a in q.answers)]
    assert leaks == []


def test_atomic_numbers_run_from_1_to_118_with_symbols_of_their_own() -> None:
    assert [int(row["number"]) for row in table("elements")] == list(range(1, 119))
    symbols = {row["symbol"] for row in table("elements")}
    assert len(symbols) == 118
    assert all(symbol.isalpha() and symbol.istitle() and len(symbol) <= 2 for symbol in symbols)


def test_periods_of_the_table_close_with_noble_gases() -> None:
    closing = [row["name"] for row in table("elements") if row["group"] == "18"]
    assert closing == ["Helium", "Neon", "Argon", "Krypton", "Xenon", "Radon", "Oganesson"]
    periods = [int(row["period"]) for row in table("elements")]
    assert [periods.count(period) for period in range(1, 8)] == [2, 8, 8, 18, 18, 32, 32]


@pytest.mark.parametrize(("name", "size"), [("countries", 197), ("states", 50)])
def test_borders_are_symmetric(name: str, size: int) -> None:
    rows = by(name, "code")
    assert len(rows) == size
    lonely = [(a, b) for a, row in rows.items() for b in row["borders"].split() if a not in rows[b]["borders"].split()]
    assert lonely == []


def test_landlocked_countries_and_islands_have_the_neighbours_that_implies() -> None:
    for row in table("countries"):
        if row["kind"].startswith("landlocked"):
            assert row["borders"], row["name"]
        if row["kind"].startswith("island"):
            assert len(row["borders"].split()) <= 3, row["name"]


@pytest.mark.parametrize(
    ("name", "column"), [("rivers", "countries"), ("mountains", "countries"), ("scientists", "country"), ("inventions", "country")]
)
def test_country_codes_exist(name: str, column: str) -> None:
    codes = set(by("countries", "code"))
    assert [row["id"] for row in table(name) if not set(row[column].split()) <= codes] == []


def test_rivers_flow_through_adjoining_countries() -> None:
    borders = {row["code"]: set(row["borders"].split()) for row in table("countries")}
    for row in table("rivers"):
        lands = row["countries"].split()
        assert all(borders[land] & set(lands) for land in lands if len(lands) > 1), row["id"]


def test_each_president_succeeds_the_one_before() -> None:
    rows = table("presidents")
    assert [int(row["number"]) for row in rows] == list(range(1, 48))
    known = texts()
    for before, row in zip(rows, rows[1:], strict=False):
        assert before["end"] == row["start"], row["number"]
        assert before["name"] in known[f"president-{row['number']}#0"]
        assert row["name"] in known[f"president-{before['number']}#0"]


def test_presidents_who_came_by_inheritance_had_been_vice_president() -> None:
    rows = table("presidents")
    heirs = [row["name"] for before, row in zip(rows, rows[1:], strict=False) if row["name"] in before["vice"]]
    assert {"John Tyler", "Andrew Johnson", "Theodore Roosevelt", "Harry S. Truman", "Lyndon B. Johnson", "Gerald Ford"} <= set(heirs)


def test_birth_states_of_presidents_exist() -> None:
    codes = set(by("states", "code"))
    assert [row["name"] for row in table("presidents") if row["state"] not in codes] == ["Andrew Jackson"]


def test_states_have_capitals_and_joined_between_1787_and_1959() -> None:
    for row in table("states"):
        assert row["capital"], row["name"]
        assert 1787 <= int(row["year"]) <= 1959, row["name"]
        assert re.fullmatch(r"\d{1,2} [A-Z][a-z]+", row["day"]), row["name"]
    assert sum(int(row["year"]) <= 1790 for row in table("states")) == 13


def test_moons_belong_to_planets_of_the_table() -> None:
    assert {row["planet"] for row in table("moons")} <= set(by("planets", "id"))


def test_people_lived_in_the_right_order() -> None:
    for name in ("scientists", "composers", "presidents"):
        for row in table(name):
            assert not row["died"] or 25 < int(row["died"]) - int(row["born"]) < 105, row["name"]
    for row in table("scientists"):
        if row["year"]:
            assert int(row["born"]) < int(row["year"][:4]) >= 1901, row["name"]
            assert not row["died"] or int(row["year"][-4:]) <= int(row["died"]), row["name"]


def test_tables_are_full_rectangles_without_stray_spaces() -> None:
    for name in KINDS.values():
        for row in table(name):
            assert None not in row.values(), row
            assert all(cell == cell.strip() for cell in row.values()), row
            assert row["note"][-1] == ".", row


def test_ids_are_readable() -> None:
    allowed = set(string.ascii_lowercase + string.digits + "-0")
    assert [article.id for article in sample.articles() if not set(article.id) <= allowed] == []
