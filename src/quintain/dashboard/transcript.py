"""Episodes as a person reads them: what the model was given in grey, what it sampled on yellow.

Sampled tokens are underlined by how unlikely they were. The text shown is the tokens that were stored, decoded; without
a decoder it is the observation and the action.
"""

import math
import re
from collections.abc import Callable, Sequence

from quintain.dashboard.page import escape
from quintain.data.used import CallNote, call_notes, find_unused
from quintain.types import Failure, Trajectory, Turn, as_text

Decode = Callable[[Sequence[int]], str]
MAX_TURNS, MAX_CHARACTERS = 40, 4000
_RARE = (0.9, 0.5, 0.1, 0.01)
"""Probabilities under which a token gets the next stronger mark."""


def transcript_html(
    trajectory: Trajectory, decode: Decode | None, *, heading: str, is_open: bool = False
) -> str:
    """Return `trajectory` as a block that folds out, or `is_open` from the start."""
    unused = find_unused(trajectory.turns)
    turns = "".join(
        _turn(turn, decode, call_notes(turn, unused.get(place)), anchor(trajectory))
        for place, turn in enumerate(trajectory.turns[:MAX_TURNS])
    )
    left_out = len(trajectory.turns) - MAX_TURNS
    more = f'<p class="soft">{left_out} more turns</p>' if left_out > 0 else ""
    final = as_text(trajectory.final_observation)
    end = f'<pre><span class="prompt">{_cut(final)}</span></pre>' if final else ""
    return (
        f"<details{' open' if is_open else ''}><summary>{escape(heading)} · {_outcome(trajectory)} · "
        f'<span class="soft">{escape(trajectory.task.id)}, {len(trajectory.turns)} turns, '
        f"{trajectory.num_sampled} tokens sampled, {escape(trajectory.stop.value)}</span></summary>"
        f"{turns}{more}{end}</details>"
    )


def _outcome(trajectory: Trajectory) -> str:
    outcome = trajectory.outcome
    if isinstance(outcome, Failure):
        return f'<span class="bad">failure of the {escape(outcome.owner)}: {escape(outcome.kind)}</span>'
    if outcome.is_success:
        return f'<span class="good">solved, reward {outcome.value:g}</span>'
    return f'<span class="bad">not solved, reward {outcome.value:g}</span>'


def anchor(trajectory: Trajectory) -> str:
    """Return what the links to calls of `trajectory` begin with."""
    return re.sub(r"\W", "-", trajectory.id or f"{trajectory.group}-{trajectory.index}")


def _note_html(note: CallNote, place: str) -> str:
    """Return a note as HTML; the call that it names is a link, to the calls whose names begin with `place`."""
    text, call = escape(note.text), f"call {escape(note.call)}"
    return text.replace(call, f'<a href="#{place}-{escape(note.call)}">{call}</a>', 1) if note.call else text


def _turn(turn: Turn, decode: Decode | None, seen: Sequence[CallNote], place: str) -> str:
    if decode is None:
        given, sampled = (
            _cut(as_text(turn.observation) + "\n"),
            f'<span class="sampled">{_cut(turn.action.text)}</span>',
        )
    else:
        given, sampled = _cut(decode(turn.prompt_ids)), _render_sampled(turn, decode)
    notes = [f"reward {turn.reward:g}"] if turn.reward else []
    notes += [f"{seat}: reward {value:g}" for seat, value in turn.rewards.items()]
    notes += [] if turn.is_valid else ["invalid action"]
    notes += [turn.action.error] if turn.action.error is not None else []
    told = [*map(escape, notes), *(_note_html(each, place) for each in seen)]
    note = f'<div class="reward">{" · ".join(told)}</div>' if told else ""
    name = f' id="{place}-{escape(turn.facts["call"])}"' if "call" in turn.facts else ""
    return f'<pre{name}><span class="prompt">{given}</span>{sampled}</pre>{note}'


def _render_sampled(turn: Turn, decode: Decode) -> str:
    """Return the completion token by token where tokens are whole characters, else in one piece."""
    completion = turn.completion
    whole = decode(completion.token_ids)
    pieces = [decode([token]) for token in completion.token_ids]
    if "".join(pieces) != whole or len(whole) > MAX_CHARACTERS or not completion.logprobs:
        return f'<span class="sampled">{_cut(whole)}</span>'
    return "".join(
        f'<span class="sampled p{_rarity(logprob)}" title="probability {math.exp(min(logprob, 0.0)):.3f}">'
        f"{escape(piece)}</span>"
        for piece, logprob in zip(pieces, completion.logprobs, strict=True)
    )


def _rarity(logprob: float) -> int:
    return sum(math.exp(min(logprob, 0.0)) < limit for limit in _RARE)


def _cut(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return escape(text)
    return escape(text[:MAX_CHARACTERS]) + f"… ({len(text) - MAX_CHARACTERS} more characters)"
