"""Chromium, and a page of it that requests nothing from elsewhere and has no errors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.retrievers.server.browsing import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra 'test-full'")
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses root otherwise
        browser = playwright.chromium.launch(executable_path=chromium(playwright), args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_context() as context:
        page = context.new_page()
        asked, mistakes = list[str](), list[str]()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        page.on("console", lambda message: mistakes.append(message.text) if message.type == "error" else None)
        yield page
        assert len({urlsplit(where).netloc for where in asked}) == 1
        assert [mistake for mistake in mistakes if not re.search(r"status of \d+", mistake)] == []
