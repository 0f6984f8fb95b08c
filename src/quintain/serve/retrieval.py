"""A retriever over HTTP, in the form of Search-R1's server: ``POST /retrieve``, and ``GET /health`` says what it holds.

See `quintain.retrieval.retriever` for what is sent and answered.
"""

from collections.abc import Mapping
from typing import Any, cast

from starlette.applications import Starlette

from quintain.errors import QuintainError
from quintain.retrieval.retriever import FoundPassage, Retriever
from quintain.serve.json_app import Refusal, Request, json_app

MAX_QUERIES, MAX_COUNT, MAX_QUERY = 256, 100, 4_096
"""The most queries of a request, passages for each, and characters of one."""
USUAL_COUNT = 3


def retrieval_app(retriever: Retriever) -> Starlette:
    """Return the app in which `retriever` searches."""

    def answer(request: Request) -> Any:
        if request.path == "/health":
            return {"status": "healthy", "retriever": retriever.name}
        if request.path != "/retrieve" or request.method != "POST":
            raise Refusal(404, "no such path; there are POST /retrieve and GET /health")
        queries, count, has_scores = _read_queries(request.body)
        try:
            found = [retriever.search(query, count) for query in queries]
        except QuintainError as error:
            raise Refusal(502, str(error)) from error
        return {"result": [[_row(each, has_scores) for each in own] for own in found]}

    return json_app(answer)


def _read_queries(body: Any) -> tuple[list[str], int, bool]:
    """Return the queries in `body`, how many passages each is to find, and whether scores are wanted."""
    row = cast("Mapping[str, Any]", body) if isinstance(body, Mapping) else {}
    queries, count = row.get("queries"), row.get("topk", USUAL_COUNT)
    if (
        not isinstance(queries, list)
        or not 0 < len(cast("list[Any]", queries)) <= MAX_QUERIES
        or not all(isinstance(each, str) and len(each) <= MAX_QUERY for each in cast("list[Any]", queries))
    ):
        raise Refusal(
            422, f"queries: give a list of 1 to {MAX_QUERIES} texts of at most {MAX_QUERY} characters"
        )
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= MAX_COUNT:
        raise Refusal(422, f"topk: got {count!r:.40}; give 1 to {MAX_COUNT}")
    return cast("list[str]", queries), count, bool(row.get("return_scores", False))


def _row(found: FoundPassage, has_scores: bool) -> Any:
    """Return a passage as it is sent; without scores as the document alone, as Search-R1's server does."""
    document = {"id": found.passage.id, "title": found.passage.title, "contents": found.passage.contents}
    return {"document": document, "score": found.score} if has_scores else document
