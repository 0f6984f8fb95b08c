"""How two sides that a person compares look in a page, and which key says what; all that they say is escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from quintain.dashboard.page import escape, page
from quintain.data.labels import Choice
from quintain.data.thoughts import whole_text
from quintain.learning.labelling import Session
from quintain.types import Message

SCRIPT = (Path(__file__).parent / "labelling.js").read_text(encoding="utf-8")
KEYS: Mapping[str, Choice] = {"1": "first", "2": "second", "=": "tie", "s": "skip"}
UNDO_KEY = "u"
MEANINGS: Mapping[str, str] = {
    "1": "the first is better",
    "=": "as good as each other",
    "2": "the second is better",
    "s": "cannot be compared",
    UNDO_KEY: "undo",
}


def words(message: Message) -> str:
    """Return what a person reads of `message`: its text, then its calls."""
    calls = [
        f"{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})" for call in message.tool_calls
    ]
    return "\n".join(part for part in (whole_text(message), *calls) if part)


def question_page(session: Session, back: str = "") -> str:
    """Return the page with the next question of `session`, or that there is none; `back` is where it leads back to."""
    query, where = session.next(), session.progress
    if query is None:
        body = "<p>Nothing is left to compare. Reload this page when there is more.</p>"
        keys = [UNDO_KEY]
    else:
        shared, first, second = query.parts
        before = (
            f"<details open><summary>Both begin with</summary>{_html(shared)}</details>" if shared else ""
        )
        cells = "".join(
            f"<td><h2><kbd>{key}</kbd>{name}</h2>{_html(side)}</td>"
            for key, name, side in (("1", "first", first), ("2", "second", second))
        )
        body = f'{before}<table class="pair"><tr>{cells}</tr></table>'
        keys = [*MEANINGS]
    if not session.labels.of(session.labeller):
        keys.remove(UNDO_KEY)
    id = "" if query is None else query.id
    buttons = "".join(
        f'<form method="post" action="answer/{id or "none"}/{_WORDS[key]}"><button data-key="{key}">'
        f"<kbd>{key}</kbd>{MEANINGS[key]}</button></form>"
        for key in keys
    )
    task = "" if query is None else str(query.first.get("task", ""))
    leave = f' · <a href="{escape(back)}">back to the run</a>' if back else ""
    head = f'<h1>Which is better?</h1><p class="soft">{escape(where)} · {escape(task)}{leave}</p>'
    return page(
        f"{session.file.name} · {where}", f'{head}{body}<div class="keys">{buttons}</div>', script=SCRIPT
    )


_WORDS: Mapping[str, str] = {**KEYS, UNDO_KEY: "undo"}


def _html(messages: Sequence[Message]) -> str:
    """Return `messages` as blocks; what the agent said is marked."""
    return "".join(
        f'<p class="soft">{escape(message.role)}</p>'
        f'<pre><span class="{_mark_message(message)}">{escape(words(message))}</span></pre>'
        for message in messages
    )


def _mark_message(message: Message) -> str:
    return "sampled" if message.role == "assistant" else "prompt"
