"""The page of `quintain.dashboard.labelling` over HTTP, for whoever knows the key in its address.

The key is a part of every path, so that no other page can name one, and no cookie is needed; a form carries nothing but
its path. `quintain.serve.listener` looks at the host and the origin before that.
"""

from __future__ import annotations

import hmac

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from quintain.dashboard.labelling import KEYS, question_page
from quintain.errors import DataError
from quintain.learning.labelling import Session

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}


def label_app(session: Session, key: str) -> Starlette:
    """Return the app whose pages are at ``/KEY/``."""

    def is_known(request: Request) -> bool:
        return hmac.compare_digest(str(request.path_params["key"]).encode(), key.encode())

    def show(request: Request) -> Response:
        if not is_known(request):
            return PlainTextResponse("open the address that quintain label printed\n", 404, HEADERS)
        return HTMLResponse(question_page(session), 200, HEADERS)

    def answer(request: Request) -> Response:
        choice = str(request.path_params["choice"])
        if not is_known(request) or choice not in (*KEYS.values(), "undo"):
            return PlainTextResponse("open the address that quintain label printed\n", 404, HEADERS)
        try:
            if choice == "undo":
                session.undo()
            else:
                session.answer(
                    str(request.path_params["query"]), next(c for c in KEYS.values() if c == choice)
                )
        except DataError as error:
            return PlainTextResponse(f"{error}\n", 409, HEADERS)
        return RedirectResponse("../../", 303, HEADERS)

    return Starlette(
        routes=[
            Route("/{key}/", show, methods=["GET"]),
            Route("/{key}/answer/{query}/{choice}", answer, methods=["POST"]),
        ]
    )
