"""Text that is safe in a page, and the page itself.

A policy forbids scripts and everything from outside; the only style allowed is ours, by its hash.
Dynamic text reaches the page through `escape`, which also makes control and direction characters
visible.
"""

import base64
import hashlib
import html
import re
from pathlib import Path

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)

STYLE = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")


def escape(text: object) -> str:
    """Return `text` as HTML text: markup is inert, invisible and direction characters are spelled out."""
    return html.escape(visible(text), quote=True)


def visible(text: object) -> str:
    """Return `text` with invisible and direction characters spelled out."""
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", str(text))


def page(title: str, body: str) -> str:
    """Return the whole HTML page; `body` is markup whose dynamic text is escaped."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def table(rows: list[tuple[str, object]]) -> str:
    """Return a table of names and values."""
    lines = [f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows]
    return f"<table>{''.join(lines)}</table>"
