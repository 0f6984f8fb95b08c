"""Records of the first encoding, in journals of the formats 1 and 2, brought into the shape of the present one."""

from itertools import accumulate, pairwise
from typing import Any

Row = dict[str, Any]
_SAME = {
    "seat": ("seat", "agent"),
    "terms": ("reward_terms", {}),
    "state": ("state_key", None),
    "error": ("action.error", None),
}
"""Name then → name of the column now, and the value where it was left out."""


def as_present(old: Row, payload: bytes) -> tuple[Row, bytes]:
    """Return the structure `old` and its arrays as `quintain.store.codec` writes them now."""
    turns: list[Row] = old.pop("turns")
    lengths: list[list[int]] = [turn["lengths"] for turn in turns]
    counts = [count for turn in lengths for count in turn[:2]]
    ends = [4 * end for end in accumulate(counts, initial=0)]
    ids = [payload[start:end] for start, end in pairwise(ends)]  # turn by turn: given, sampled
    columns = {
        "observation": [_content(turn["observation"]) for turn in turns],
        "prompt_ids": [turn[0] for turn in lengths],
        "completion.token_ids": [turn[1] for turn in lengths],
        "completion.logprobs": [turn[2] for turn in lengths],
        "completion.stop": [turn["stop"] for turn in turns],
        "completion.policy_version": [turn["version"] for turn in turns],
        "action.text": [turn["action"] for turn in turns],
        "action.tool_calls": [_name_values(turn, "calls", "name", "arguments") for turn in turns],
        "reward": [turn["reward"] for turn in turns],
        "is_valid": ["invalid" not in turn for turn in turns],
        "starts_segment": ["segment" in turn for turn in turns],
        "tool_errors": [_name_values(turn, "tool_errors", "tool", "cause") for turn in turns],
        **{new: [turn.get(name, default) for turn in turns] for name, (new, default) in _SAME.items()},
    }
    row = {
        **old,
        "final_observation": _content(old["final"]),
        "arrays": [sum(counts), old["logprobs"], sum(turn[2] for turn in lengths)],
        "turns": [len(turns), columns],
    }
    del row["final"], row["logprobs"]
    return row, b"".join([*ids[::2], *ids[1::2], payload[ends[-1] :]])


def _name_values(turn: Row, what: str, *names: str) -> list[Row]:
    return [dict(zip(names, values, strict=True)) for values in turn.get(what, ())]


def _content(old: str | list[Any]) -> list[Any]:
    if isinstance(old, str):
        return [old]
    return [part if isinstance(part, str) else {"media_type": part[0], "data": part[1]} for part in old]
