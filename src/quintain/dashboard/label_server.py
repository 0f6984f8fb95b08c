"""The page of `quintain.dashboard.labelling` over HTTP, for whoever knows the key in its address.

The key is a part of every path, so that no other page can name one, and no cookie is needed; a form carries nothing but
its path. `quintain.serve.listener` looks at the host and the origin before that. `quintain label` serves it alone,
`quintain view` beside its pages.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from quintain.dashboard.labelling import KEYS, question_page
from quintain.data.labels import Choice
from quintain.errors import QuintainError
from quintain.learning.labelling import Session
from quintain.types.terminal import spell_out

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}
CHOICES: Mapping[str, Choice] = {choice: choice for choice in KEYS.values()}
REFUSED = "open the address that quintain label or quintain view printed\n"


def label_app(session: Session, key: str) -> Starlette:
    """Return the app whose pages are at ``/KEY/``."""

    def find_session(request: Request) -> Session | None:
        is_known = hmac.compare_digest(str(request.path_params["key"]).encode(), key.encode())
        return session if is_known else None

    return Starlette(routes=label_routes("/{key}", find_session))


def label_routes(
    place: str,
    find_session: Callable[[Request], Session | None],
    find_back: Callable[[Request], str] = lambda _: "",
) -> list[Route]:
    """Return the routes of the pages at `place`, a path with parameters.

    `find_session` returns what a request answers to, None where whoever asks does not know the key, or raises a
    `QuintainError`; `find_back` returns where its page leads back to.
    """

    def respond(request: Request, act: Callable[[Session], Response]) -> Response:
        try:
            session = find_session(request)
            return PlainTextResponse(REFUSED, 404, HEADERS) if session is None else act(session)
        except QuintainError as error:
            return PlainTextResponse(f"{spell_out(error)}\n", 409, HEADERS)

    def show(request: Request) -> Response:
        return respond(
            request, lambda session: HTMLResponse(question_page(session, find_back(request)), 200, HEADERS)
        )

    def answer(request: Request) -> Response:
        choice = str(request.path_params["choice"])

        def write(session: Session) -> Response:
            if choice == "undo":
                session.undo()
            elif choice in CHOICES:
                session.answer(str(request.path_params["query"]), CHOICES[choice])
            else:
                return PlainTextResponse(REFUSED, 404, HEADERS)
            return RedirectResponse("../../", 303, HEADERS)

        return respond(request, write)

    return [
        Route(f"{place}/", show, methods=["GET"]),
        Route(f"{place}/answer/{{query}}/{{choice}}", answer, methods=["POST"]),
    ]
