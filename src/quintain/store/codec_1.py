"""Records of the first encoding, in journals of the formats 1 and 2, brought into the shape of the present one."""

from typing import Any

Row = dict[str, Any]
_SAME = {
    "seat": "seat",
    "reward": "reward",
    "terms": "reward_terms",
    "state": "state_key",
}


def as_present(old: Row) -> Row:
    """Return the structure `old` as `quintain.store.codec` writes it now; arrays stay in the same order."""
    turns: list[Row] = old.pop("turns")
    final = _content(old.pop("final"))
    num_ids = sum(turn["lengths"][0] + turn["lengths"][1] for turn in turns)
    num_reals = sum(turn["lengths"][2] for turn in turns)
    arrays = [num_ids, old.pop("logprobs"), num_reals]
    return {**old, "turns": [_turn(turn) for turn in turns], "final_observation": final, "arrays": arrays}


def _turn(old: Row) -> Row:
    num_prompt, num_sampled, num_logprobs = old["lengths"]
    calls = [{"name": name, "arguments": given} for name, given in old.get("calls", ())]
    errors = [{"tool": tool, "cause": cause} for tool, cause in old.get("tool_errors", ())]
    return {
        "observation": _content(old["observation"]),
        "prompt_ids": num_prompt,
        "completion": {
            "token_ids": num_sampled,
            "logprobs": num_logprobs,
            "stop": old["stop"],
            "policy_version": old["version"],
        },
        "action": {"text": old["action"], "tool_calls": calls, "error": old.get("error")},
        "is_valid": "invalid" not in old,
        "starts_segment": "segment" in old,
        "tool_errors": errors,
        **{new: old[name] for name, new in _SAME.items() if name in old},
    }


def _content(old: str | list[Any]) -> list[Any]:
    if isinstance(old, str):
        return [old]
    return [part if isinstance(part, str) else {"media_type": part[0], "data": part[1]} for part in old]
