"""A real browser for the pages that unit tests open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.commands.plan.picture.browser import Page, browser


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """opened(path, look, …): the file in a browser that a module's tests share, and what `look(page)` gives of it.

    The page must log nothing, and ask for nothing outside itself.
    """
    loop = asyncio.new_event_loop()
    stack = contextlib.AsyncExitStack()

    async def all_of_it(path: Path, look: Callable[[Page], Awaitable[Any]], window: dict[str, Any]) -> Any:
        await shown.open(path, **window)
        found = await look(shown)
        await shown.value("1")  # whatever it says of itself by now
        assert shown.logged == []
        assert [url for url in shown.asked if not url.startswith(("file:", "data:", "blob:"))] == []
        return found

    try:
        shown = loop.run_until_complete(stack.enter_async_context(browser(tmp_path_factory.mktemp("profile"))))
        yield lambda path, look, **window: loop.run_until_complete(all_of_it(path, look, window))
    finally:
        loop.run_until_complete(stack.aclose())
        loop.close()
