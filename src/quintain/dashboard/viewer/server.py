"""The viewer over HTTP: its pages, what they show as JSON, and a stream that says when there is more.

Everything lies below a key, the first part of each path, so that no other page and no other user of the machine can
name an address; `quintain.serve.listener` looks at the host and the origin before that. Every text in an answer is
spelled out (`quintain.types.terminal`), pages put it in as text, and a policy forbids scripts, styles and connections
that are not the viewer's own. The page on which people compare two episodes is that of `quintain label`, with a policy
of its own.
"""

from __future__ import annotations

import hmac
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from quintain.dashboard.label_server import label_routes
from quintain.dashboard.page import page
from quintain.dashboard.report import report_body
from quintain.dashboard.viewer import payloads
from quintain.dashboard.viewer.labels import Labellings
from quintain.dashboard.viewer.replays import Replays
from quintain.dashboard.viewer.tokens import show_episode
from quintain.dashboard.viewer.viewed import Viewer
from quintain.errors import QuintainError
from quintain.learning.labelling import Session
from quintain.types.terminal import spell_out

FRONT = Path(__file__).parent / "front"
KINDS: Mapping[str, str] = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
REFUSED = "open the address that quintain view printed\n"
PULSE, HEARTBEAT = 1.0, 15.0
"""Seconds between two looks at a run that is shown, and after which something is sent in any case."""
MAX_BODY = 1 << 20
"""Bytes of what a page may send."""
MAX_NAMES = 300
"""Metrics that are asked for at once."""


def view_app(viewer: Viewer, key: str) -> Starlette:
    """Return the app whose pages are at ``/KEY/``; without a `key` at ``/``."""
    replays, labellings = Replays(viewer), Labellings(viewer)
    asked: dict[str, Callable[[Mapping[str, str]], Any]] = {
        "runs": lambda _: payloads.list_runs(viewer),
        "run": lambda query: payloads.show_run(viewer.get(_name(query))),
        "options": lambda query: payloads.show_options(viewer.get(_name(query))),
        "now": lambda query: payloads.describe_now(viewer.get(_name(query))),
        "metrics": lambda query: payloads.show_metrics(
            viewer.get(_name(query)), query.get("names", "").split(",")[:MAX_NAMES], query.get("axis", "step")
        ),
        "episodes": lambda query: payloads.list_episodes(viewer.get(_name(query)), query),
        "facets": lambda query: payloads.show_facets(viewer.get(_name(query))),
        "episode": lambda query: show_episode(
            viewer.get(_name(query)), query.get("id", ""), first_turn=int(query.get("first", "0") or 0)
        ),
        "data": lambda query: payloads.show_data(viewer.get(_name(query)), query),
        "compare": lambda query: payloads.compare_runs(
            viewer.get(_name(query)), viewer.get(query.get("with", "") or _name(query)), query
        ),
    }
    done: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "begin": lambda body: replays.begin(str(body.get("run", "")), str(body.get("id", ""))),
        "go": lambda body: replays.go(str(body.get("session", "")), int(body.get("turn", 0))),
        "act": lambda body: replays.act(str(body.get("session", "")), body),
        "play": lambda body: replays.go_on(
            str(body.get("session", "")), str(body.get("policy", "")), int(body.get("turns", 0))
        ),
        "label": labellings.begin,
    }

    def is_known(request: Request) -> bool:
        return hmac.compare_digest(str(request.path_params["key"]).encode(), key.encode())

    def refuse() -> Response:
        return PlainTextResponse(REFUSED, 401, HEADERS)

    def show_page(request: Request) -> Response:
        if not is_known(request):
            return refuse()
        text = (FRONT / "index.html").read_text(encoding="utf-8")
        return HTMLResponse(text, 200, {**HEADERS, "Content-Security-Policy": POLICY})

    def show_file(request: Request) -> Response:
        file = FRONT / str(request.path_params["file"])
        if not is_known(request):
            return refuse()
        if file.parent != FRONT or file.suffix not in KINDS or not file.is_file():
            return PlainTextResponse("no such file\n", 404, HEADERS)
        return Response(file.read_bytes(), 200, HEADERS, media_type=KINDS[file.suffix])

    def answer(request: Request) -> Response:
        name = str(request.path_params["what"])
        if not is_known(request):
            return refuse()
        if name not in asked:
            return as_json({"error": f"no such question: {name}"}, 404)
        return reply(lambda: asked[name](request.query_params))

    async def act(request: Request) -> Response:
        name = str(request.path_params["what"])
        if not is_known(request):
            return refuse()
        if name not in done:
            return as_json({"error": f"no such act: {name}"}, 404)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY:
                return as_json({"error": f"got more than {MAX_BODY} bytes"}, 413)
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            return as_json({"error": "got a body that is no JSON object"}, 400)
        return await anyio.to_thread.run_sync(lambda: reply(lambda: done[name](found)))

    def find_session(request: Request) -> Session | None:
        parts = request.path_params
        return labellings.find(str(parts["run"]), str(parts["labeller"])) if is_known(request) else None

    def find_back(request: Request) -> str:
        return f"../../../#/data?run={quote(str(request.path_params['run']), safe='')}"

    def show_report(request: Request) -> Response:
        """Answer with the report of a run: a page without scripts."""
        if not is_known(request):
            return refuse()
        try:
            viewed = viewer.get(str(request.path_params["run"]))
            return HTMLResponse(page(viewed.name, report_body(viewed.run, viewed.decode())), 200, HEADERS)
        except QuintainError as error:
            return PlainTextResponse(f"{spell_out(error)}\n", 404, HEADERS)

    async def stream(request: Request) -> Response:
        """Answer with events, one whenever one of the runs has more than before."""
        if not is_known(request):
            return refuse()
        names = [name for name in request.query_params.get("runs", "").split(",") if name][:20]
        return StreamingResponse(
            tell(request, names), 200, {**HEADERS, "X-Accel-Buffering": "no"}, media_type="text/event-stream"
        )

    async def tell(request: Request, names: list[str]) -> AsyncIterator[str]:
        before, silent = "", HEARTBEAT
        while not await request.is_disconnected():
            found = await anyio.to_thread.run_sync(lambda: json.dumps(read_pulse(viewer, names)))
            if found != before:
                yield f"data: {found}\n\n"
                before, silent = found, 0.0
            elif silent >= HEARTBEAT:
                yield ": still here\n\n"
                silent = 0.0
            await anyio.sleep(PULSE)
            silent += PULSE

    async def forward(request: Request) -> Response:
        return RedirectResponse(f"/{key}/", 307, HEADERS) if is_known(request) else refuse()

    app = Starlette(
        routes=[
            Route("/{key}/", show_page, methods=["GET"]),
            Route("/{key}", forward, methods=["GET"]),
            Route("/{key}/front/{file}", show_file, methods=["GET"]),
            Route("/{key}/api/live", stream, methods=["GET"]),
            Route("/{key}/api/{what}", answer, methods=["GET"]),
            Route("/{key}/act/{what}", act, methods=["POST"]),
            Route("/{key}/report/{run}", show_report, methods=["GET"]),
            *label_routes("/{key}/label/{run}/{labeller}", find_session, find_back),
        ]
    )
    app.state.replays = replays
    return app


def read_pulse(viewer: Viewer, names: list[str]) -> dict[str, Any]:
    """Return how far each of the runs is, so that a page knows what to ask for anew."""
    found: dict[str, Any] = {}
    for name in names:
        try:
            viewed = viewer.get(name)
            ends = viewed.read_ends()
            found[spell_out(name)] = {**ends, "status": viewed.run.status, "left": viewed.num_left > 0}
        except QuintainError as error:
            found[spell_out(name)] = {"error": spell_out(error)}
    return found


def reply(call: Callable[[], Any]) -> Response:
    """Return the answer of `call` as JSON, or the line that says what is wrong with what was asked."""
    try:
        return as_json(call())
    except QuintainError as error:
        return as_json({"error": str(error)}, 400)
    except (ValueError, OverflowError) as error:
        return as_json({"error": f"what was asked: got {error}"}, 400)
    except sqlite3.Error as error:
        return as_json({"error": f"the index: got {error}; reload the page"}, 503)


def as_json(value: Any, status: int = 200) -> Response:
    """Return `value` as an answer, every text in it spelled out, what is not finite as null."""
    text = json.dumps(clean(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "replace"), status, HEADERS, media_type="application/json")


def clean(value: Any) -> Any:
    """Return `value` as JSON can hold it and a page can show it."""
    if isinstance(value, str):
        return spell_out(value)
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, bool | int) or value is None:
        return value
    if isinstance(value, Mapping):
        return {spell_out(name): clean(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [clean(part) for part in value]
    return spell_out(value)


def _name(query: Mapping[str, str]) -> str:
    return query.get("run", "")
