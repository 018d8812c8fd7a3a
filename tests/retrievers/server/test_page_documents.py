"""The search page shows where a passage stands in its document, and what is around it."""

from __future__ import annotations

from pathlib import Path

import pytest

import wikidx as idx
from tests.retrievers.server.browsing import browsing, link_to, watched_page
from tests.retrievers.server.serving import serving
from wikidx.retrievers.server.settings import Settings

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra 'test-full'")

pytestmark = pytest.mark.slow  # a browser


def test_passages_around_a_hit_unfold(home: Path) -> None:
    text = "The river is long. The <b>fox</b> drinks. The whale is far away. The stone is deep."
    idx.build([{"id": "tale", "text": text}], name="tales", split="sentences:1").close()
    with serving(Settings(corpora=("tales",), retrievers=("bm25",), port=0)) as url, browsing() as browser:
        with watched_page(context := browser.new_context()) as page:
            page.goto(link_to(url, ["fox"], {"retriever": "bm25"}, corpus="tales"))
            passage = page.locator("li.passage")
            sync_api.expect(passage.locator(".place")).to_have_text("tale")
            passage.locator("summary").click()
            sync_api.expect(passage.locator(".around p")).to_have_text(["tale#0 The river is long.", "tale#2 The whale is far away."])
        context.close()
