"""Articles on countries, rivers and mountains."""

from __future__ import annotations

from collections.abc import Iterator

from corpora.passage import Passage

from .tables import Row, article, bare, country, indefinite, listed, opened, pick, table

_TITLES = {"GE": "Georgia (country)"}
_DECLARED = frozenset({"AL", "AR", "BG", "CL", "CO", "EE", "FI", "GW", "HT", "ID", "LT", "LV", "MX", "PE", "US", "UY", "VE", "VN"})


def countries() -> Iterator[Passage]:
    """Yield one article per country."""
    for n, row in enumerate(table("countries")):
        name = row["name"]
        plain = f"{opened(name)} is one of the countries of {row['region']}."
        if row["kind"] != "country":
            plain = f"{opened(name)}, {indefinite(row['kind'])}, lies in {row['region']}."
        lead = pick(n, f"{opened(name)} is {indefinite(row['kind'])} in {row['region']}.", plain)
        facts = [_capital(n, row), _borders(n, row), _money(n, row), _independence(n, row)]
        facts = facts[n % 2 :: 2] + facts[1 - n % 2 :: 2] if n % 3 else facts
        yield article(
            f"country-{row['code'].lower()}", _TITLES.get(row["code"], opened(bare(name))), [lead, *facts, row["note"]], _sights(n, row)
        )


def _capital(n: int, row: Row) -> str:
    if not row["capital"]:
        return ""
    if row["capital"] == row["name"]:
        return "The capital bears the same name."
    return pick(n, f"Its capital is {row['capital']}.", f"{row['capital']} is the capital.", f"The capital is called {row['capital']}.")


def _money(n: int, row: Row) -> str:
    talk = pick(
        n, f"the state uses {row['languages']}", f"public business is done in {row['languages']}", f"the authorities use {row['languages']}"
    )
    pay = pick(
        n + n // 3,
        f"people pay with the {row['currency']}",
        f"the currency is the {row['currency']}",
        f"prices are given in the {row['currency']}",
    )
    clauses = [clause for clause, cell in ((talk, row["languages"]), (pay, row["currency"])) if cell]
    return opened(", and ".join(clauses)) + "." if clauses else ""


def _borders(n: int, row: Row) -> str:
    around = [country(code) for code in row["borders"].split()]
    if not around:
        return ""
    if len(around) == 1:
        return f"Its only land border is with {around[0]}."
    return pick(
        n,
        f"It borders {listed(around)}.",
        f"Its neighbours by land are {listed(around)}.",
        f"Land frontiers separate it from {listed(around)}.",
    )


def _independence(n: int, row: Row) -> str:
    year, ruler = row["year"], row["ruler"]
    if not year:
        return ""
    if not ruler:
        return f"As a state in its present form it dates from {year}."
    if row["code"] in _DECLARED:
        return f"It declared its independence from {ruler} in {year}."
    return pick(
        n,
        f"It became independent from {ruler} in {year}.",
        f"In {year} it won its independence from {ruler}.",
        f"Independence from {ruler} came in {year}.",
    )


def _sights(n: int, row: Row) -> Iterator[str]:
    code = row["code"]
    rivers = [f"the {river['name']}" for river in table("rivers") if code in river["countries"].split()]
    if rivers:
        yield f"{opened(listed(rivers[:4]))} {'flow' if rivers[1:] else 'flows'} through it or along its edge."
    peaks = [peak["name"] for peak in table("mountains") if code in peak["countries"].split()]
    if peaks:
        yield pick(n, f"Its peaks include {listed(peaks[:3])}.", f"Climbers know it for {listed(peaks[:3])}.")
    born = [person["name"] for kind in ("scientists", "composers") for person in table(kind) if person["country"] == code]
    if born:
        yield f"{listed(born[:3])} {'were' if born[1:] else 'was'} born on its present territory."


def rivers() -> Iterator[Passage]:
    """Yield one article per river."""
    for n, row in enumerate(table("rivers")):
        name = row["name"]
        through = listed([country(code) for code in row["countries"].split()])
        course = pick(
            n,
            f"The {name} has its source in {row['source']} and empties into {row['mouth']}.",
            f"From {row['source']} the {name} runs to {row['mouth']}.",
            f"The river {name.removesuffix(' River')} comes from {row['source']} and ends in {row['mouth']}.",
        )
        size = f"{pick(n, 'Its length is', 'It measures')} about {row['length']} kilometres."
        lands = pick(n, f"On its way it touches {through}.", f"Its course leads through {through}.")
        if " " not in row["countries"]:
            lands = f"It flows through {through}."
        towns = pick(n, f"On its banks stand {row['cities']}.", f"{row['cities']} can be found along it.")
        if not set(row["cities"]) & set(",") and " and " not in row["cities"]:
            towns = f"The chief city beside it is {row['cities']}."
        facts = [course, size if row["length"] else "", lands, towns if row["cities"] else ""]
        more = iter(_other_rivers(row))
        yield article(f"river-{row['id']}", name if name.endswith("River") else f"{name} (river)", [*facts, row["note"]], more)


def _other_rivers(row: Row) -> Iterator[str]:
    for code in row["countries"].split():
        others = [f"the {other['name']}" for other in table("rivers") if other is not row and code in other["countries"].split()]
        if others:
            yield f"Other rivers of {country(code)} include {listed(others[:4])}."


def mountains() -> Iterator[Passage]:
    """Yield one article per mountain."""
    for n, row in enumerate(table("mountains")):
        lands = [country(code) for code in row["countries"].split()]
        where = f" on the border of {listed(lands)}" if lands[1:] else f" in {lands[0] if lands else 'Antarctica'}"
        chain = f" in {row['range']}" if row["range"] else ""
        kind = pick(n, "peak", "mountain") if chain else "mountain"
        lead = f"{opened(row['name'])} is {indefinite(kind)}{chain}{',' if chain else ''}{where}."
        height = pick(
            n, f"Its summit is about {row['height']} metres above the sea.", f"It rises to a height of about {row['height']} metres."
        )
        climb = ""
        if row["year"]:
            climb = f"It was first climbed in {row['year']}{' by ' if row['climbers'] else ''}{row['climbers']}."
            if row["climbers"] and n % 2:
                climb = f"The first ascent, in {row['year']}, was made by {row['climbers']}."
        sentences = [lead, height if row["height"] else "", climb, row["note"]]
        yield article(f"mountain-{row['id']}", opened(bare(row["name"])), sentences, _other_peaks(row))


def _other_peaks(row: Row) -> Iterator[str]:
    metres = {peak["id"]: int(peak["height"].replace(",", "")) for peak in table("mountains") if peak["height"]}
    others = [other for other in table("mountains") if other is not row and other["id"] in metres]
    others.sort(key=lambda other: abs(metres[other["id"]] - metres.get(row["id"], 0)))
    chain = [other for other in others if row["range"] and other["range"] == row["range"]]
    lands = set(row["countries"].split())
    near = chain or [other for other in others if len(lands) == 1 and lands & set(other["countries"].split())]
    heights = [f"{other['name']} ({other['height']} metres)" for other in near[:3]]
    if heights:
        yield f"In the same {'range' if chain else 'country'} {'rise' if heights[1:] else 'rises'} {listed(heights)}."
