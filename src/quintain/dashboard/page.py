"""Text that is safe in a page, and the page itself.

A policy forbids everything from outside, and all scripts and styles but ours, which it names by their hashes.
Dynamic text reaches the page through `escape`, which also makes control and direction characters
visible.
"""

import base64
import hashlib
import html
from pathlib import Path

from quintain.types.terminal import spell_out

STYLE = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")


def escape(text: object) -> str:
    """Return `text` as HTML text: markup is inert, invisible and direction characters are spelled out."""
    return html.escape(spell_out(text), quote=True)


def page(title: str, body: str, *, script: str = "") -> str:
    """Return the whole HTML page; `body` is markup whose dynamic text is escaped.

    A `script` of ours is allowed by its hash, and with it forms that go where the page came from, which learns so from
    their origin: without any referrer a browser sends none.
    """
    allowed = f"script-src {_digest(script)}; form-action 'self'" if script else "form-action 'none'"
    policy = f"default-src 'none'; style-src {_digest(STYLE)}; base-uri 'none'; {allowed}"
    referrer = "same-origin" if script else "no-referrer"
    code = f"<script>{script}</script>\n" if script else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="referrer" content="{referrer}">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n{code}</body>\n</html>\n"
    )


def _digest(text: str) -> str:
    """Return how a policy names an inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def table(rows: list[tuple[str, object]]) -> str:
    """Return a table of names and values."""
    lines = [f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows]
    return f"<table>{''.join(lines)}</table>"
