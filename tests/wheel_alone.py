"""Check of an installed wheel, run by ``make wheel-test`` in an empty folder: a search finds what it should, by the wheel's code alone."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import wikidx


def check(checkout: Path) -> str:
    """Return what was checked, in words.

    Raises:
        AssertionError: code of the checkout can be imported, the version is another one, or the search finds something else.
    """
    code = Path(wikidx.__file__)
    assert code.is_relative_to(sys.prefix), f"{code} is not in {sys.prefix}"
    reachable = [path for path in sys.path if (Path(path) / "runtimes").exists() or Path(path).resolve() == checkout]
    assert not reachable, f"{reachable} on the path"
    version = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert wikidx.__version__ == version, f"{wikidx.__version__} is installed, {version} was built"
    with wikidx.open_searcher("sample", "bm25") as searcher:
        rankings = searcher.search(["Which metal is liquid at room temperature?", "chemical symbol Au"], k=1)
    assert [ranking[0].title for ranking in rankings] == ["Mercury (element)", "Gold"], rankings
    return f"wikidx {version} in {code.parent} finds what it should, by Python {sys.version.split()[0]}"


sys.stdout.write(check(Path(sys.argv[1]).resolve()) + "\n")
