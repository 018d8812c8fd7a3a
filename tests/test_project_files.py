"""The files about the project itself: how to cite it, and what changed."""

from __future__ import annotations

import importlib
import json
import re
import tomllib

import pytest

from tests.conftest import ROOT
from tests.idx_line import parse
from wikidx.retrievers.server.metrics import PATHS

yaml = importlib.import_module("yaml")  # it has no types

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_citation_has_the_fields_that_its_format_wants() -> None:
    """The fields that the Citation File Format 1.2.0 requires, and those that must agree with the package."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert set(cited) <= {
        "cff-version",
        "message",
        "type",
        "title",
        "abstract",
        "authors",
        "version",
        "date-released",
        "license",
        "keywords",
    }
    assert (cited["cff-version"], cited["type"]) == ("1.2.0", "software")
    assert cited["authors"] == [{"name": "idx maintainers"}]
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])
    assert all(isinstance(keyword, str) for keyword in cited["keywords"])


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.+?)\] - (unreleased|\d{4}-\d\d-\d\d)$", text, flags=re.MULTILINE)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert versions[0] == (PROJECT["version"], str(cited.get("date-released", "unreleased")))
    assert len(versions) == len(re.findall(r"^## ", text, flags=re.MULTILINE))
    kinds = re.findall(r"^### (.+)$", text, flags=re.MULTILINE)
    assert set(kinds) <= {"Moving", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Known limits"}


@pytest.mark.parametrize("file", ["Dockerfile", "Dockerfile.cuda"])
def test_an_image_copies_installs_and_runs_what_there_is(file: str) -> None:
    text = (ROOT / "docker" / file).read_text(encoding="utf-8")
    assert {*re.findall(r"^ARG EXTRAS=(\S+)$", text, flags=re.MULTILINE)} <= {*PROJECT["optional-dependencies"]}
    copied = {name for line in re.findall(r"^COPY (?!--)(.+) \S+$", text, flags=re.MULTILINE) for name in line.split()}
    assert all((ROOT / name).exists() for name in copied)
    assert copied >= {link.name for link in (ROOT / "wikidx").iterdir() if link.is_symlink()} | {"wikidx", "LICENSE"}
    versions = {
        f"Programming Language :: Python :: {version}" for version in re.findall(r"^FROM python:([\d.]+)", text, flags=re.MULTILINE)
    }
    assert versions <= {*PROJECT["classifiers"]}
    assert re.findall(r"^HEALTHCHECK .*127\.0\.0\.1:8000(/\w+)", text, flags=re.MULTILINE)[0] in PATHS
    assert re.findall(r"^(?:USER|EXPOSE|VOLUME) (.+)$", text, flags=re.MULTILINE) == ["idx", "/data", "8000"]
    parse(json.loads(re.findall(r"^CMD (.+)$", text, flags=re.MULTILINE)[-1]))
