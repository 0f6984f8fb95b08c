"""A real MCP server, written with the official SDK, for `test_mcp`: over stdio, or over HTTP with ``--port``."""

import argparse
import os
import time
from typing import Any, cast

from mcp.server.mcpserver import MCPServer  # pyright: ignore[reportMissingImports]

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
parser.add_argument(
    "--hazards", action="store_true", help="offer tools that hang and that end the server, too"
)
arguments = parser.parse_args()
# The SDK writes what a tool raises as a coloured traceback, which takes longer than all else here.
server = cast(Any, MCPServer("shop", log_level="CRITICAL"))
stock = {"apple": 3}


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def buy(item: str, count: int = 1) -> str:
    """Buy something."""
    if item not in stock:
        raise ValueError(f"no {item}")
    stock[item] -= count
    return f"{stock[item]} left"


@server.tool()
def refill() -> str:
    """Fill the shop again."""
    stock["apple"] = 3
    return "full"


def die() -> str:
    """End the server."""
    os._exit(3)


def hang() -> str:
    """Take for ever."""
    time.sleep(1000)
    return ""


if arguments.hazards:
    server.tool()(die)
    server.tool()(hang)
if arguments.port is not None:
    server.run("streamable-http", port=arguments.port)
else:
    server.run()
