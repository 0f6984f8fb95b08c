"""An episode as the page of tokens shows it: every sampled token with all that the journal has of it."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

from quintain.dashboard.viewer.payloads import brief
from quintain.dashboard.viewer.trees import read_branches, read_search
from quintain.dashboard.viewer.viewed import Decode, ViewedRun, find_agent
from quintain.data.seats import seat_returns, speakers
from quintain.data.used import call_notes, find_unused
from quintain.errors import DataError
from quintain.store.signals import NAMES
from quintain.types import Failure, Image, Signals, Text, Trajectory, Turn, Use
from quintain.types.forest import find_parents

MAX_TURNS = 200
"""Turns that are sent at once."""
MAX_GIVEN = 20_000
"""Characters of what a turn was given that are shown; of more, the middle is left out."""
MAX_SAMPLED = 20_000
"""Tokens of a turn that are shown one by one."""
MAX_IMAGE = 4 << 20
"""Bytes of a picture that is shown."""
PICTURES = frozenset(["image/png", "image/jpeg", "image/gif", "image/webp"])
LONGEST_PIECE = 12
"""Tokens that may make up one character."""


def show_episode(viewed: ViewedRun, name: str, *, first_turn: int = 0) -> dict[str, Any]:
    """Return the episode `name` with its turns from `first_turn` on, its tokens, and what stands around it.

    Raises:
        DataError: there is none, or it cannot be read.
    """
    viewed.read_ends()
    facts = viewed.index.episode(name)
    if facts is None:
        raise DataError(
            f"an episode of {viewed.name}: got the id {name!r:.60}, which is not there; look into the list"
        )
    trajectory = viewed.run.episode(name)
    decode = viewed.decode()
    uses = find_uses(viewed, facts)
    around = viewed.index.neighbours(facts)
    return {
        **brief(facts),
        "run": viewed.name,
        "seed": trajectory.seed,
        "task_prompt": trajectory.task.prompt,
        "outcome": _outcome(trajectory),
        "seats": list(speakers(trajectory)),
        "seat_returns": seat_returns(trajectory),
        "parent_turn": facts["parent_turn"],
        "has_tokenizer": decode is not None,
        "num_turns": len(trajectory.turns),
        "first_turn": first_turn,
        "turns": turns_of(trajectory, decode, first_turn),
        "final": parts_of(trajectory.final_observation),
        "uses": [_use(step, use) for step, use in uses],
        "lacks": find_gaps(trajectory, [use for _, use in uses]),
        "clip": _clip(viewed.run.config),
        "search": read_search(trajectory, find_agent(viewed.run)),
        "branches": read_branches(viewed.index.relatives(facts), facts["row"]),
        "neighbours": {kind: [brief(row) for row in rows] for kind, rows in around.items()},
    }


def find_uses(viewed: ViewedRun, facts: Mapping[str, Any]) -> list[tuple[int, Use]]:
    """Return the steps that learned from an episode, with what its tokens were trained with."""
    steps = viewed.index.find_steps(facts["row"]) or ([facts["step"]] if facts["phase"] == "train" else [])
    found: list[tuple[int, Use]] = []
    for step in steps[:20]:
        found += [(step, use) for _, use in viewed.run.uses(step) if use.episode == facts["id"]]
    return found


def find_gaps(trajectory: Trajectory, uses: Sequence[Use]) -> list[str]:
    """Return what is not known of the tokens of an episode, in words, and why."""
    gaps: list[str] = []
    if not uses:
        gaps.append(
            "no step learned from this episode: it has no weights, advantages or log-probs of the learner"
        )
    elif all(use.signals is None for use in uses):
        gaps.append(
            "the step kept no signals of it: the method has none, --records-signals is off, or its tokens were edited"
        )
    kept = [use.signals for use in uses if use.signals is not None]
    absent = {
        "entropy (of a run of an earlier release)": all(each.entropies is None for each in kept),
        "value (its step had no critic)": all(each.values is None for each in kept),
        "reference gap (its step had no reference)": all(each.reference_logprobs is None for each in kept),
    }
    if kept and any(absent.values()):
        gaps.append(", ".join(name for name, is_absent in absent.items() if is_absent))
    if trajectory.turns and not any(turn.completion.logprobs for turn in trajectory.turns):
        gaps.append(
            "its tokens have no log-probs: they were not sampled, but demonstrated or written by somebody else"
        )
    return gaps


def turns_of(trajectory: Trajectory, decode: Decode | None, first: int = 0) -> list[dict[str, Any]]:
    """Return `MAX_TURNS` turns of an episode from number `first` on."""
    parents = find_parents(trajectory.turns)
    try:
        unused = find_unused(trajectory.turns)
    except DataError:  # recorded by a newer release
        unused = {}
    offsets = [0]
    for turn in trajectory.turns:
        offsets.append(offsets[-1] + len(turn.completion.token_ids))
    return [
        {
            "number": number,
            "offset": offsets[number],
            "continues": parents[number][0],
            "num_shared": parents[number][1],
            **_turn(turn, decode),
            "call": str(turn.facts["call"]) if "call" in turn.facts else "",
            "notes": [
                {"text": note.text, "call": note.call} for note in call_notes(turn, unused.get(number))
            ],
        }
        for number, turn in enumerate(trajectory.turns)
        if first <= number < first + MAX_TURNS
    ]


def _turn(turn: Turn, decode: Decode | None) -> dict[str, Any]:
    completion, action = turn.completion, turn.action
    ids = completion.token_ids[:MAX_SAMPLED]
    return {
        "seat": turn.seat,
        "is_internal": turn.is_internal,
        "starts_segment": turn.starts_segment,
        "observation": parts_of(turn.observation),
        "given": "" if decode is None else _shorten(decode(turn.prompt_ids)),
        "num_given": len(turn.prompt_ids),
        "pieces": [] if decode is None else split_pieces(ids, decode),
        "ids": list(ids),
        "num_sampled": len(completion.token_ids),
        "logprobs": [_number(value) for value in completion.logprobs[:MAX_SAMPLED]],
        "stop": completion.stop,
        "policy": completion.policy,
        "version": completion.policy_version,
        "versions": [list(span) for span in completion.version_spans],
        "text": action.text,
        "calls": [{"name": call.name, "arguments": dict(call.arguments)} for call in action.tool_calls],
        "error": action.error,
        "is_valid": turn.is_valid,
        "reward": turn.reward,
        "rewards": dict(turn.rewards),
        "terms": dict(turn.reward_terms),
        "state": turn.state_key,
        "tool_errors": [{"tool": error.tool, "cause": error.cause} for error in turn.tool_errors],
    }


def split_pieces(ids: Sequence[int], decode: Decode) -> list[str]:
    """Return the text of each of `ids`; tokens that make up a character together have it at the last of them."""
    pieces = [decode([token]) for token in ids]
    if "�" not in "".join(pieces):
        return pieces
    found: list[str] = []
    waiting: list[int] = []
    for token in ids:
        waiting.append(token)
        text = decode(waiting)
        if text.endswith("�") and len(waiting) < LONGEST_PIECE:
            found.append("")
            continue
        found.append(text)
        waiting = []
    if waiting and found:
        found[-1] = decode(waiting)
    return found


def parts_of(content: Sequence[Any]) -> list[dict[str, Any]]:
    """Return an observation as texts and pictures; a picture as the address of its data."""
    found: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, Image):
            is_shown = part.media_type in PICTURES and len(part.data) <= MAX_IMAGE
            address = (
                f"data:{part.media_type};base64,{base64.b64encode(part.data).decode()}" if is_shown else ""
            )
            found.append(
                {"kind": "image", "source": address, "bytes": len(part.data), "type": part.media_type}
            )
        elif isinstance(part, Text):
            call = getattr(part, "call", None)
            found.append(
                {"kind": "text" if call is None else "result", "text": _shorten(part.text), "call": call}
            )
    return found


def _shorten(text: str) -> str:
    if len(text) <= MAX_GIVEN:
        return text
    half = MAX_GIVEN // 2
    return f"{text[:half]}\n[… {len(text) - MAX_GIVEN:,} characters …]\n{text[-half:]}"


def _outcome(trajectory: Trajectory) -> dict[str, Any]:
    outcome = trajectory.outcome
    if isinstance(outcome, Failure):
        return {"owner": outcome.owner, "kind": outcome.kind, "message": outcome.message}
    return {"value": outcome.value, "is_success": outcome.is_success}


def _use(step: int, use: Use) -> dict[str, Any]:
    return {"step": step, "rejected": use.rejected, "signals": _signals(use.signals)}


def _signals(signals: Signals | None) -> dict[str, list[float | None]]:
    """Return the arrays that were kept, by name."""
    found: dict[str, list[float | None]] = {}
    for name in NAMES:
        array = None if signals is None else getattr(signals, name)
        if array is not None:
            found[name] = [_number(value) for value in array.tolist()]
    return found


def _number(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def _clip(config: Mapping[str, Any]) -> list[float] | None:
    """Return the ratios between which a token's gradient is not clipped, where the method has such."""
    low, high = config.get("clip_low"), config.get("clip_high")
    if isinstance(low, int | float) and isinstance(high, int | float):
        return [1 - float(low), 1 + float(high)]
    return None
