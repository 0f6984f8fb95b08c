"""An episode as a tree: what a searching agent tried in it, and what was played on from it and from its beginnings.

A node has its key, that of the node above, a label, how many went through it (visits), its value where one is known,
and whether the way that counts goes through it (is_chosen).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from quintain.agents.deliberation import describe_action
from quintain.config.spec import split_query
from quintain.data.searched import number_actions, split_head
from quintain.errors import UsageError
from quintain.search.harness import read_score
from quintain.types import Trajectory

SEARCHED = re.compile(r"(?:^|\+)searched(?:\?(?P<options>[^+]*))?(?:\+|$)")
MAX_LABEL = 200
"""Characters of an action that are sent."""


def read_search(trajectory: Trajectory, agent: str) -> dict[str, Any] | None:
    """Return what a search tried in an episode; None of an episode in which nobody searched.

    The value of a state is what the model said of it, else its share of the votes as the search counts them; where the
    search of the harness `agent` went by what was paid, that was not recorded. Visits are the actions that were asked
    for in a state.
    """
    end, found, _ = split_head(trajectory.final_observation)
    heads = [split_head(turn.observation)[:2] for turn in trajectory.turns]
    if end != "end" and not any(what or way for what, way in heads):
        return None
    nodes: dict[int, dict[str, Any]] = {}
    known: dict[tuple[int | None, str], int] = {}
    asked = Counter[int | None]()
    score = _read_score_option(agent)
    for place, (turn, number) in enumerate(zip(trajectory.turns, number_actions(trajectory), strict=True)):
        what, way = heads[place]
        above = way[-1] if way else None
        if turn.is_internal or (above is not None and above not in nodes):
            continue
        if what == "judge":
            score = "model"
            if above is not None:
                nodes[above]["value"] = read_score(turn.action.text)
            continue
        asked[above] += 1
        key = above, describe_action(turn.action)
        if key in known:
            nodes[known[key]]["votes"] += 1
            continue
        known[key] = number
        nodes[number] = {
            "key": number, "parent": above, "label": key[1][:MAX_LABEL], "turn": place, "votes": 1, "value": None,
            "is_chosen": number in found, "is_end": bool(found) and number == found[-1],
        }  # fmt: skip
    for key, node in nodes.items():
        node["visits"] = asked[key]
        if score == "votes":
            before = 1.0 if node["parent"] is None else nodes[node["parent"]]["value"]
            node["value"] = before * node["votes"] / asked[node["parent"]]
    return {"nodes": [*nodes.values()], "score": score, "is_solved": trajectory.is_success}


def _read_score_option(agent: str) -> str:
    """Return by what the search of the harness `agent` says what a state is worth."""
    match = SEARCHED.search(agent)
    try:
        options = dict(split_query((match["options"] if match else "") or "", "searched"))
    except UsageError:
        return ""
    return str(options.get("score", "votes"))


def read_branches(rows: Sequence[Mapping[str, Any]], chosen: int) -> list[dict[str, Any]]:
    """Return the tree of the episodes in `rows`, the first of which the others were played on from.

    A node is a stretch of turns that the same episodes share; its value is the mean return of those that were scored.
    Those of the episode in the row `chosen` are chosen. Empty where there is one episode alone.
    """
    children: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows[1:]:
        children.setdefault(row["parent"], []).append(row)
    nodes: dict[str, dict[str, Any]] = {}
    waiting: list[tuple[Mapping[str, Any], int, str | None]] = [(rows[0], 0, None)] if len(rows) > 1 else []
    for row, start, above in waiting:  # grows under way
        own = children.get(row["row"], [])
        begun = {child["row"]: min(max(child["parent_turn"] or 0, start), row["turns"]) for child in own}
        ends = {start: above}
        for first, last in pairwise(sorted({start, row["turns"], *begun.values()})):
            key = f"{row['row']}:{first}"
            nodes[key] = {
                "key": key, "parent": ends[first], "label": _name_turns(first, last), "visits": 0, "value": None,
                "is_chosen": False, "is_end": last == row["turns"], "id": row["id"], "returns": [],
            }  # fmt: skip
            ends[last] = key
        for at in _through(nodes, ends[row["turns"]]):
            at["visits"] += 1
            at["is_chosen"] |= row["row"] == chosen
            if row["value"] is not None and not row["owner"]:
                at["returns"].append(row["value"])
        waiting += [(child, begun[child["row"]], ends[begun[child["row"]]]) for child in own]
    for node in nodes.values():
        returns = node.pop("returns")
        node["value"] = sum(returns) / len(returns) if returns else None
    return [*nodes.values()]


def _through(nodes: Mapping[str, dict[str, Any]], key: str | None) -> list[dict[str, Any]]:
    """Return the node `key` and all above it."""
    found: list[dict[str, Any]] = []
    while key is not None:
        found.append(nodes[key])
        key = nodes[key]["parent"]
    return found


def _name_turns(first: int, last: int) -> str:
    return f"turn {last}" if last == first + 1 else f"turns {first + 1}–{last}"
