"""Articles on the states of the United States and on their presidents."""

from __future__ import annotations

from collections.abc import Iterator

from corpora.passage import Passage

from .tables import Row, article, listed, names, opened, pick, table

_MEMBER = {
    "Federalist": "a Federalist",
    "Democratic-Republican": "a Democratic-Republican",
    "Democratic": "a Democrat",
    "Whig": "a Whig",
    "Republican": "a Republican",
}
_TITLES = {"GA": "Georgia (U.S. state)", "WA": "Washington (U.S. state)", "NY": "New York (state)"}
_LAST_RATIFIED = 1790


def states() -> Iterator[Passage]:
    """Yield one article per state."""
    for n, row in enumerate(table("states")):
        name = row["name"]
        lead = pick(
            n,
            f"{name}, nicknamed {row['nickname']}, is one of the United States and lies in {row['region']}.",
            f"{name} is an American state in {row['region']}, known as {row['nickname']}.",
        )
        joined = "ratified the constitution and entered the union" if int(row["year"]) <= _LAST_RATIFIED else "was admitted to the union"
        since = pick(n, f"It {joined} on {row['day']} {row['year']}.", f"On {row['day']} {row['year']} it {joined}.")
        yield article(
            f"state-{row['code'].lower()}", _TITLES.get(row["code"], name), [lead, _cities(n, row), since, row["note"]], _around(n, row)
        )


def _cities(n: int, row: Row) -> str:
    capital, largest = row["capital"], row["largest"]
    if not largest:
        return f"The capital is {capital}."
    if largest == capital:
        return pick(n, f"{capital} is both its capital and its largest city.", f"The capital, {capital}, is also the biggest city.")
    return pick(
        n,
        f"Its capital is {capital}, while {largest} is the largest city.",
        f"{largest} is the most populous city, but the capital is {capital}.",
    )


def _around(n: int, row: Row) -> Iterator[str]:
    borders = [names("states", "code")[code] for code in row["borders"].split()]
    if len(borders) == 1:
        yield f"Among the other states it touches only {borders[0]}."
    elif borders:
        yield pick(n, f"It borders {listed(borders)}.", f"Its neighbours in the union are {listed(borders)}.")
    born = list(dict.fromkeys(president["name"] for president in table("presidents") if president["state"] == row["code"]))
    if born:
        yield f"{'The president' if len(born) == 1 else 'The presidents'} {listed(born)} {'was' if len(born) == 1 else 'were'} born there."


def presidents() -> Iterator[Passage]:
    """Yield one article per presidency; whoever served twice with a gap has two."""
    rows = table("presidents")
    served = [row["name"] for row in rows]
    for n, row in enumerate(rows):
        title = row["name"] if served.count(row["name"]) == 1 else f"{row['name']} ({_ordinal(row['number'])} president)"
        place = f"{row['place']}, {names('states', 'code')[row['state']]}" if row["state"] else row["place"]
        born = pick(n, f"He was born in {row['born']} in {place}", f"Born in {place} in {row['born']}")
        if not row["died"]:
            born = f"He was born in {row['born']} in {place}."
        else:
            born += pick(n, " and", ", he") + f" died in {row['died']}."
        yield article(f"president-{row['number']}", title, [_office(n, row), _politics(n, row), born, _deputy(n, row), row["note"]])


def _ordinal(number: str) -> str:
    endings = {"1": "st", "2": "nd", "3": "rd"}
    return number + ("th" if number in {"11", "12", "13"} else endings.get(number[-1], "th"))


def _office(n: int, row: Row) -> str:
    term = f"from {row['start']} to {row['end']}"
    if not row["end"]:
        return f"{row['name']} took office in {row['start']} as the {_ordinal(row['number'])} president of the United States."
    if row["start"] == row["end"]:
        term = f"for part of {row['start']}"
    return pick(
        n,
        f"{row['name']} was the {_ordinal(row['number'])} president of the United States and served {term}.",
        f"The {_ordinal(row['number'])} president of the United States, {term}, was {row['name']}.",
    )


def _politics(n: int, row: Row) -> str:
    rows = table("presidents")
    who = f"{opened(_MEMBER[row['party']])}, he" if row["party"] else "He"
    if n == 0:
        return f"{who} was the first to hold the post and was followed by {rows[1]['name']}."
    before = rows[n - 1]["name"]
    if n == len(rows) - 1:
        return f"{who} succeeded {before}."
    return pick(
        n,
        f"{who} succeeded {before} and was followed by {rows[n + 1]['name']}.",
        f"{who} came after {before} and before {rows[n + 1]['name']}.",
    )


def _deputy(n: int, row: Row) -> str:
    if not row["vice"]:
        return "The vice presidency stayed vacant in his time."
    if not row["end"]:
        return f"{row['vice']} was sworn in with him as vice president."
    several = " and " in row["vice"]
    return pick(
        n,
        f"His vice {'presidents were' if several else 'president was'} {row['vice']}.",
        f"{row['vice']} served under him as vice {'presidents' if several else 'president'}.",
    )
