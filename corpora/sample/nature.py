"""Articles on chemical elements, planets and moons."""

from __future__ import annotations

from collections.abc import Iterator

from corpora.passage import Passage

from .tables import Row, article, indefinite, listed, names, opened, pick, table

_FIRST_MADE = 93
_SHARED_NAMES = frozenset({"Mercury"})


def elements() -> Iterator[Passage]:
    """Yield one article per chemical element."""
    rows = table("elements")
    for n, row in enumerate(rows):
        name = row["name"].lower()
        title = f"{row['name']} (element)" if row["name"] in _SHARED_NAMES else row["name"]
        lead = pick(
            n,
            f"{row['name']} is the chemical element with the symbol {row['symbol']} and the atomic number {row['number']}.",
            f"The chemical element {name}, written {row['symbol']}, has {row['number']} protons in its nucleus.",
            f"{row['name']} ({row['symbol']}) is number {row['number']} among the chemical elements.",
        )
        origin = f"{pick(n, 'Its name', 'The name', f'The word {name}')} {row['origin']}."
        story = [_discovery(n, row), origin] if n % 2 else [origin, _discovery(n, row)]
        yield article(f"element-{row['number']}", title, [lead, _place(n, row), *story, row["note"]], _company(n, row))


def _place(n: int, row: Row) -> str:
    kind = row["category"] or "element"
    where = f"group {row['group']}" if row["group"] else "the f-block"
    state = f"{pick(n, ', and under ordinary conditions it is a', '; at room temperature it is a')} {row['state']}" if row["state"] else ""
    return pick(
        n,
        f"It is {indefinite(kind)} of {where} and period {row['period']}{state}.",
        f"Chemists put it as {indefinite(kind)} into {where} and period {row['period']}{state}.",
    )


def _discovery(n: int, row: Row) -> str:
    if not row["discoverer"]:
        return ""
    when = f" in {row['year']}" if row["year"] else ""
    if int(row["number"]) >= _FIRST_MADE:
        return pick(
            n, f"It was first made{when} by {row['discoverer']}.", f"{opened(row['discoverer'])} produced it for the first time{when}."
        )
    return pick(
        n,
        f"{opened(row['discoverer'])} discovered it{when}.",
        f"Its discovery{when} is due to {row['discoverer']}.",
        f"It was discovered{when} by {row['discoverer']}.",
    )


def _company(n: int, row: Row) -> Iterator[str]:
    rows = table("elements")
    before, after = rows[n - 1]["name"].lower(), rows[(n + 1) % len(rows)]["name"].lower()
    if 0 < n < len(rows) - 1:
        yield pick(n, f"In the periodic table it stands between {before} and {after}.", f"Its neighbours are {before} and {after}.")
    column = [other["name"].lower() for other in rows if other["group"] == row["group"] != "" and other is not row]
    if column:
        yield pick(n, f"The same column holds {listed(column)}.", f"It shares its column with {listed(column)}.")


def planets() -> Iterator[Passage]:
    """Yield one article per planet or dwarf planet."""
    for n, row in enumerate(table("planets")):
        title = f"{row['name']} (planet)" if row["name"] in _SHARED_NAMES else row["name"]
        kind = f"{row['kind']} number {row['order']}, counted from the sun" if row["order"] else f"a {row['kind']} beyond the eight planets"
        if row["id"] == "ceres":
            kind = f"a {row['kind']} in the asteroid belt"
        sentences = [
            f"{row['name']} is {kind}." if n % 2 else f"Among the bodies of the solar system, {row['name']} is {kind}.",
            pick(
                n,
                f"Its mean radius is about {row['radius']} kilometres.",
                f"From centre to surface it measures about {row['radius']} kilometres.",
            ),
            f"It circles the sun in {row['period']} at a mean distance of about {row['distance']} million kilometres.",
            row["note"],
        ]
        yield article(f"planet-{row['id']}", title, sentences, _satellites(row))


def _satellites(row: Row) -> Iterator[str]:
    moons = [moon["name"] for moon in table("moons") if moon["planet"] == row["id"]]
    if row["id"] == "earth":
        yield "A single large moon accompanies it, and it is the third of four rocky worlds, after Mercury and Venus and before Mars."
    elif moons:
        yield f"{listed(moons)} are among its moons." if len(moons) > 2 else f"It has two moons, {listed(moons)}."
    elif row["kind"] == "planet":
        yield "It has no moon."


def moons() -> Iterator[Passage]:
    """Yield one article per moon."""
    hosts = names("planets", "id")
    for n, row in enumerate(table("moons")):
        host = hosts[row["planet"]]
        host = "the Earth" if host == "Earth" else host
        name = row["name"]
        lead = pick(
            n,
            f"{opened(name)} is a moon of {host}.",
            f"{opened(name)} travels round {host} as one of its moons.",
            f"{opened(name)} is a satellite of {host}.",
        )
        if name == "the Moon":
            lead = "The Moon is the only natural satellite of the Earth, at a mean distance of about 384,400 kilometres."
        found = pick(
            n, f"{opened(row['discoverer'])} discovered it in {row['year']}.", f"It was first seen in {row['year']} by {row['discoverer']}."
        )
        size = pick(
            n, f"Its mean radius is about {row['radius']} kilometres.", f"It has a mean radius of roughly {row['radius']} kilometres."
        )
        sentences = [lead, found if row["year"] else "", size if row["radius"] else "", row["note"]]
        others = [other["name"] for other in table("moons") if other["planet"] == row["planet"] and other is not row]
        more = iter(
            [f"Another moon of {host} is {others[0]}." if len(others) == 1 else f"Other moons of {host} include {listed(others)}."][
                : len(others)
            ]
        )
        yield article(f"moon-{row['id']}", opened(name) if name != "the Moon" else "Moon", sentences, more)
