"""Articles on laureates and other thinkers, books, paintings, composers and inventions."""

from __future__ import annotations

from collections.abc import Iterator

from corpora.passage import Passage

from .tables import Row, article, bare, country, home, indefinite, listed, opened, pick, table


def scientists() -> Iterator[Passage]:
    """Yield one article per scientist or other laureate."""
    for n, row in enumerate(table("scientists")):
        place = home(row["place"], row["country"])
        died = f" and died in {row['died']}" if row["died"] else ""
        lead = pick(
            n,
            f"{row['name']}, {indefinite(row['field'])}, was born in {row['born']} in {place}{died}.",
            f"The {row['field']} {row['name']} was born in {place} in {row['born']}{died}.",
        )
        yield article(f"person-{row['id']}", row["name"], [lead, _prize(n, row), row["note"]], _peers(row))


def _prize(n: int, row: Row) -> str:
    if not row["prize"]:
        return ""
    if " and " in row["year"]:
        return f"Two Nobel Prizes, of {row['year']} ({row['prize']}), rewarded {row['achievement']}."
    prize = "Nobel Peace Prize" if row["prize"] == "Peace" else f"Nobel Prize in {row['prize']}"
    return pick(
        n, f"The {prize} of {row['year']} was given for {row['achievement']}.", f"In {row['year']} {row['achievement']} won the {prize}."
    )


def _peers(row: Row) -> Iterator[str]:
    others = sorted(
        (other for other in table("scientists") if other is not row), key=lambda other: abs(int(other["born"]) - int(row["born"]))
    )
    same = [f"{other['name']} ({other['year']})" for other in others if other["prize"] == row["prize"] != ""]
    if same:
        yield f"Among other laureates of the same kind {'are' if same[1:] else 'is'} {listed(same[:3])}."
    native = [other["name"] for other in others if other["country"] == row["country"]]
    if native:
        yield f"Great minds born within the present borders of {country(row['country'])} also include {listed(native[:3])}."


def books() -> Iterator[Passage]:
    """Yield one article per literary work."""
    for n, row in enumerate(table("books")):
        lead = pick(
            n,
            f"{row['title']} is {indefinite(row['kind'])} by {row['author']}, written in {row['language']}.",
            f"{row['author']} wrote the {row['kind']} {row['title']} in {row['language']}.",
        )
        printed = pick(n, f"It came out as a book in {row['year']}.", f"As a book it first appeared in {row['year']}.")
        hero = pick(
            n,
            f"At its centre stands {row['character']}.",
            f"The main character is {row['character']}.",
            f"It deals with {row['character']}.",
        )
        if " and " in row["character"] and n % 3 == 1:
            hero = f"The story follows {row['character']}."
        yield article(f"book-{row['id']}", row["title"], [lead, printed if row["year"] else "", hero, row["note"]], _shelf(row))


def _shelf(row: Row) -> Iterator[str]:
    others = [other["title"] for other in table("books") if other["author"] == row["author"] and other is not row]
    if others:
        yield f"The same author also wrote {listed(others)}."
    language = [
        f"{other['title']} by {other['author']}"
        for other in table("books")
        if other["language"] == row["language"] and other["author"] != row["author"]
    ]
    if language and row["language"] != "English":
        yield f"Other classics in {row['language']} include {listed(language[:3])}."


def paintings() -> Iterator[Passage]:
    """Yield one article per picture."""
    for n, row in enumerate(table("paintings")):
        when = f" in {row['year']}" if row["year"] else ""
        lead = pick(
            n,
            f"{row['title']} is a work by {row['artist']}{', finished' if when else ''}{when}.",
            f"{row['artist']} created {row['title']}{when}.",
        )
        where = f"the {row['museum']} in {home(row['city'], row['country'])}" if row["museum"] else ""
        place = (
            pick(n, f"It belongs to {where}.", f"Visitors see it at {where}.")
            if where
            else f"It was made in {bare(country(row['country']))}."
        )
        yield article(f"painting-{row['id']}", row["title"], [lead, place, row["note"]], _gallery(row))


def _gallery(row: Row) -> Iterator[str]:
    alike = [other for other in table("paintings") if row["museum"] and other["museum"] == row["museum"] and other is not row]
    if alike:
        works = [f"{other['title']} by {other['artist']}" for other in alike[:3]]
        yield f"The same museum owns {listed(works)}."


def composers() -> Iterator[Passage]:
    """Yield one article per composer."""
    for n, row in enumerate(table("composers")):
        place = home(row["place"], row["country"])
        lead = pick(
            n,
            f"{row['name']} was a composer, born in {row['born']} in {place}, who died in {row['died']}.",
            f"The composer {row['name']} was born in {place} in {row['born']} and died in {row['died']}.",
        )
        works = pick(n, f"Among his works are {row['works']}.", f"He is known for {row['works']}.", f"He wrote {row['works']}.")
        yield article(f"composer-{row['id']}", row["name"], [lead, works, row["note"]], _contemporaries(row))


def _contemporaries(row: Row) -> Iterator[str]:
    peers = [other["name"] for other in table("composers") if other is not row and abs(int(other["born"]) - int(row["born"])) <= 12]
    if peers:
        yield f"Composers of the same generation were {listed(peers[:4])}." if peers[1:] else f"{peers[0]} was of the same generation."


def inventions() -> Iterator[Passage]:
    """Yield one article per invention."""
    for n, row in enumerate(table("inventions")):
        thing, maker = row["name"], row["inventor"]
        lead = pick(
            n,
            f"{opened(thing)} is an invention of {row['year']}, credited to {maker}.",
            f"{maker} {'are' if ' and ' in maker else 'is'} remembered for {thing}, which dates from {row['year']}.",
        )
        yield article(f"invention-{row['id']}", opened(bare(thing)), [lead, row["note"]], _progress(row))


def _progress(row: Row) -> Iterator[str]:
    rows = sorted(table("inventions"), key=lambda other: int("".join(filter(str.isdigit, other["year"]))))
    at = rows.index(row)
    before, after = (
        [f"{other['name']} ({other['year']})" for other in part] for part in (rows[max(at - 2, 0) : at], rows[at + 1 : at + 3])
    )
    yield f"It originated in {country(row['country'])}."
    if before:
        yield f"Before it came {listed(before)}."
    if after:
        yield f"Next in time came {listed(after)}."
