"""The dashboard's server: reads only, with a token, one stream for each page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from elasticdl.dashboard import panels
from elasticdl.dashboard.fleet_view import FleetView
from elasticdl.dashboard.job_view import JobView
from elasticdl.dashboard.sources import FleetSource, Jobs
from elasticdl.shared.errors import ElasticDLError, UserError

STATIC = Path(__file__).with_name("static")
STREAM_S = 1.0
"""Seconds between two messages of a stream, at least, so that a busy job does not flood pages."""
STREAM_S_MAX = 5.0
"""Seconds after which the page of a running job gets news at the latest."""
CPU_PART_MAX = 0.002
"""Part of one core that the pages of a running job may take. If they take more, they get news less often."""
IDLE_S = 15.0
"""Seconds after which a stream without news sends a comment, so that proxies keep the connection open."""
VIEWS_MAX = 8
"""Jobs that are held in memory; of more, the one that was asked for least recently is forgotten."""
ROWS = 60
"""Rows of a table, unless a request says how many."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
_HOW_TO_OPEN = "Open the address that elasticdl dashboard has printed."
_FILES = {"app.js": "text/javascript", "app.css": "text/css"}
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})


class Dashboard:
    """The views of the jobs that pages have asked for.

    Args:
        jobs: what there is to see.
        token: what a page has to know.
        only: key of the only job; empty: an overview of all comes first.
        hosts: names under which the server may be asked, against pages of others that guess its address; empty: any.
        fleet: the log of a controller; None: only jobs are shown.
    """

    def __init__(
        self,
        jobs: Jobs,
        token: str,
        *,
        only: str = "",
        hosts: frozenset[str] = LOOPBACK_HOSTS,
        fleet: FleetSource | None = None,
    ) -> None:
        self._fleet = FleetView(fleet) if fleet else None
        self._jobs = jobs
        self._token = token
        # Browsers give cookies to all servers of a host: each dashboard has its own.
        self._cookie = f"elasticdl-{sha256(token.encode()).hexdigest()[:8]}"
        self._only = only
        self._hosts = hosts
        self._views: dict[str, JobView] = {}

    def app(self) -> Starlette:
        """The application."""
        routes: list[tuple[str, Callable[[Request], Awaitable[Response]]]] = [
            ("/", self._page),
            ("/static/{name}", self._file),
            ("/api/jobs", self._list),
            ("/api/stream", self._stream),
            ("/api/fleet", self._fleet_at),
            ("/api/fleet/curves", self._fleet_curves),
            ("/api/view", self._view_at),
            ("/api/why", self._why),
            ("/api/pods", self._pods),
            ("/api/compare", self._compare),
            ("/api/curves", self._curves),
            ("/api/timeline", self._timeline),
            ("/api/events", self._events),
            ("/api/tasks", self._tasks),
            ("/api/task", self._task),
        ]
        return Starlette(
            routes=[Route(path, self._guarded(answer), methods=["GET"]) for path, answer in routes],
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        del app
        yield
        for view in self._views.values():
            await view.close()
        if self._fleet:
            await self._fleet.close()

    def _guarded(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Answer requests that have the token; an error becomes a response with its message."""

        async def guarded(request: Request) -> Response:
            host = request.headers.get("host", "")
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
            if self._hosts and name not in self._hosts:
                return JSONResponse({"error": f"this dashboard does not serve {name}. {_HOW_TO_OPEN}"}, status_code=403)
            if (given := request.query_params.get("token")) is not None and self._knows(given):
                # The token leaves the address, so that it is in no history and no link.
                rest = request.url.remove_query_params("token")
                response: Response = RedirectResponse(rest.path + (f"?{rest.query}" if rest.query else ""))
                response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            elif not self._knows(request.cookies.get(self._cookie, "")) and not self._knows(_bearer(request)):
                return JSONResponse({"error": _HOW_TO_OPEN}, status_code=401)
            else:
                response = await self._answered(answer, request)
            response.headers.update(_HEADERS)
            return response

        return guarded

    async def _answered(self, answer: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        try:
            return await answer(request)
        except UserError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        except ElasticDLError as error:
            return JSONResponse({"error": str(error)}, status_code=502)

    def _knows(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), self._token.encode())

    async def _page(self, request: Request) -> Response:
        del request
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _FILES:
            return JSONResponse({"error": "there is no such file"}, status_code=404)
        return FileResponse(STATIC / name, media_type=_FILES[name], headers={"Cache-Control": "no-cache"})

    async def _list(self, request: Request) -> Response:
        del request
        rows = await asyncio.to_thread(self._jobs.rows)
        facts = {"fleet": self._fleet is not None, "opens_fleet_jobs": self._jobs.are_in_cluster}
        return _json({"only": self._only, "jobs": list(map(asdict, rows)), **facts})

    def _fleet_view(self) -> FleetView:
        if self._fleet is None:
            raise UserError("this dashboard shows no fleet", hint="Start it with --fleet=FILE.")
        self._fleet.start()
        return self._fleet

    async def _fleet_at(self, request: Request) -> Response:
        source = self._fleet_view().source
        return _json(source.at(_number(request, "at", len(source.times))))

    async def _fleet_curves(self, request: Request) -> Response:
        del request
        return _json(self._fleet_view().source.samples())

    def _view(self, request: Request, name: str = "job") -> JobView:
        """The view of the job that a request names; reading its log begins with the first one."""
        key = request.query_params.get(name, self._only)
        view = self._views.pop(key, None)
        if view is None:
            view = JobView(self._jobs.find(key))
            view.start()
        self._views[key] = view  # The last one is that which was asked for last.
        return view

    async def _forget(self) -> None:
        while len(self._views) > VIEWS_MAX:
            await self._views.pop(next(iter(self._views))).close()

    async def _stream(self, request: Request) -> Response:
        view = self._fleet_view() if request.query_params.get("fleet") else self._view(request)
        await self._forget()

        async def messages() -> AsyncIterator[str]:
            told = ""
            while not await request.is_disconnected():
                message = json.dumps(view.facts())
                yield f"data: {message}\n\n" if message != told else ": here\n\n"
                told, before_s = message, time.process_time()
                await view.changed(IDLE_S)
                await asyncio.sleep(STREAM_S if view.is_complete else STREAM_S / 4)
                if view.is_complete:  # A running job: what the page asked for meanwhile takes time from it.
                    spent_s = time.process_time() - before_s
                    await asyncio.sleep(max(0.0, min(STREAM_S_MAX, spent_s / CPU_PART_MAX) - STREAM_S))

        return StreamingResponse(messages(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def _view_at(self, request: Request) -> Response:
        view = self._view(request)
        return _json({"job": view.source.job, **panels.overview(view.replay, _seq(request, view))})

    async def _why(self, request: Request) -> Response:
        view = self._view(request)
        return _json(panels.why(view.replay, _seq(request, view)))

    async def _pods(self, request: Request) -> Response:
        view, text = self._view(request), request.query_params.get("text", "")
        start, limit = _number(request, "from", 0), min(_number(request, "limit", ROWS), panels.EVENTS_MAX)
        return _json(panels.pods(view.replay, _seq(request, view), text, start, limit))

    async def _compare(self, request: Request) -> Response:
        views = [self._view(request), self._view(request, "with")]
        await self._forget()
        return _json({"read": [view.facts() for view in views], **panels.comparison(*(v.replay for v in views))})

    async def _curves(self, request: Request) -> Response:
        return _json(panels.curves(self._view(request).replay, _number(request, "after", 0)))

    async def _timeline(self, request: Request) -> Response:
        return _json(panels.timeline(self._view(request).replay))

    async def _events(self, request: Request) -> Response:
        view, query = self._view(request), request.query_params
        types = [name for name in query.get("type", "").split(",") if name]
        limit = min(_number(request, "limit", ROWS), panels.EVENTS_MAX)
        where, text = query.getlist("where"), query.get("text", "")
        return _json(panels.events(view.replay, _seq(request, view), types, where, text, limit))

    async def _tasks(self, request: Request) -> Response:
        view = self._view(request)
        query = panels.task_query(dict(request.query_params))
        return _json(panels.tasks(view.replay, _seq(request, view), query))

    async def _task(self, request: Request) -> Response:
        view = self._view(request)
        return _json(panels.story(view.replay, _seq(request, view), _number(request, "number", 0)))


def _json(value: Any) -> Response:
    headers = {"Cache-Control": "no-store"}
    try:
        return JSONResponse(value, headers=headers)
    except (ValueError, TypeError):  # A number is not finite, or a mapping is no dict; few answers have one.
        return JSONResponse(panels.finite(value), headers=headers)


def _bearer(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token if kind.lower() == "bearer" else ""


def _number(request: Request, name: str, otherwise: int) -> int:
    text = request.query_params.get(name, "")
    if text and not text.isdecimal():
        raise UserError(f"{name}={text} is not a number")
    return int(text) if text else otherwise


def _seq(request: Request, view: JobView) -> int:
    """The point of a request; the last record if it names none, or one that is not read yet."""
    return min(_number(request, "at", view.read), view.read)
