"""A chat endpoint on this machine that answers what a test tells it to."""

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from quintain.serve.listener import Listener

KEY = "s3cret"


class ChatModel:
    """Answers each question with what `say` makes of its body: a text, a message, or a status."""

    def __init__(self, say: Callable[[dict[str, Any]], Any]) -> None:
        self.say = say
        self.seen: list[dict[str, Any]] = []
        routes = [
            Route("/v1/chat/completions", self.answer, methods=["POST"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
        ]
        app = Starlette(routes=routes)
        self.listener = Listener(app, token=KEY).start()
        self.url = f"{self.listener.url}/v1"

    async def answer(self, request: Request) -> JSONResponse:
        body = await request.json()
        self.seen.append(body)
        found = self.say(body)
        if isinstance(found, int):
            return JSONResponse({}, found)
        message = found if isinstance(found, dict) else {"content": found}
        return JSONResponse({"choices": [{"message": message}], "usage": {"total_tokens": 10}})

    async def complete(self, request: Request) -> JSONResponse:
        body = await request.json()
        self.seen.append(body)
        return JSONResponse(self.say(body))
