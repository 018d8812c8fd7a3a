"""The files about the project itself: how to cite it, and what changed."""

from __future__ import annotations

import importlib
import re
import tomllib

from tests.conftest import ROOT

yaml = importlib.import_module("yaml")  # it has no types

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_citation_has_the_fields_that_its_format_wants() -> None:
    """The fields that the Citation File Format 1.2.0 requires, and those that must agree with the package."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert set(cited) <= {"cff-version", "message", "type", "title", "abstract", "authors", "version", "license", "keywords"}
    assert (cited["cff-version"], cited["type"]) == ("1.2.0", "software")
    assert cited["authors"] == [{"name": "idx maintainers"}]
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])
    assert all(isinstance(keyword, str) for keyword in cited["keywords"])


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.+?)\] - (unreleased|\d{4}-\d\d-\d\d)$", text, flags=re.MULTILINE)
    assert versions[0][0] == PROJECT["version"]
    assert len(versions) == len(re.findall(r"^## ", text, flags=re.MULTILINE))
    kinds = re.findall(r"^### (.+)$", text, flags=re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Known limits"}
