"""Pages that a command serves until it is interrupted, and what serves them."""

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quintain.serve.listener import Listener


def require_server(feature: str) -> None:
    """Raise `MissingExtra` where what serves the pages of `feature` is not installed."""
    from quintain.environments.extras import extra_module

    for package in ("starlette", "uvicorn"):
        extra_module(package, package=package, extra="serve", feature=feature)


def serve_until_interrupted(listener: "Listener", address: str, *, opens: bool) -> None:
    """Let `listener` serve until it is closed or Ctrl-C; `opens`: show `address` in the browser first."""
    if opens:
        open_browser(address)
    with suppress(KeyboardInterrupt):
        listener.run_until_closed()


def open_browser(address: str) -> None:
    """Show `address` in the browser."""
    import webbrowser

    webbrowser.open(address)
