"""LangGraph's agent that reasons and acts, over langchain-openai."""

import atexit
from contextlib import suppress

import httpx
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from langgraph.prebuilt import create_react_agent
from lesson import PROMPT, SYSTEM, Game
from pydantic import SecretStr

from quintain import Task

HTTP, LATER = httpx.Client(), httpx.AsyncClient()
atexit.register(HTTP.close)


def run_agent(base_url: str, api_key: str, task: Task) -> bool:
    """Play with tools until the model calls none."""
    game = Game(task)
    model = ChatOpenAI(
        model="policy", base_url=base_url, api_key=SecretStr(api_key),
        http_client=HTTP, http_async_client=LATER,
    )  # fmt: skip
    tool = StructuredTool.from_function(game.guess, name="guess", description="Guess the number.")
    graph = create_react_agent(model, [tool], prompt=SYSTEM)
    with suppress(GraphRecursionError):  # the model goes on guessing
        graph.invoke({"messages": [("user", PROMPT)]}, {"recursion_limit": 7})
    return game.is_won
