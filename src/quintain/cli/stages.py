"""The stages that `quintain data` knows, by name: one table makes their list, their options and their page.

An option is a keyword of the function that makes the stage; a first parameter `given` is what was gathered, for stages
that ask about texts, tools or the environment of an episode.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from quintain.data import stages
from quintain.data.calls import right_calls
from quintain.data.pipeline import Stage
from quintain.errors import UsageError, suggestion

if TYPE_CHECKING:
    from quintain.training.gathering import Gathered


def calls(given: Gathered, semantic: bool = True, *, name: str = "right_calls") -> Stage:
    """Let the turns count whose calls can be read, fit the listed tools, and use values that were said (xLAM)."""
    return right_calls(given.told, semantic=semantic, name=name)


def contamination(given: Gathered, held_out: str, size: int = 10, *, name: str = "contamination") -> Stage:
    """Keep the episodes that share no run of `size` words with the file `held_out` (AgentTuning)."""
    from quintain.training.demonstrations import texts_of

    if not Path(held_out).exists():
        raise UsageError(f"held_out of {name}: got {held_out!r}, which is not there; give a file or a folder")
    return stages.without_overlap(texts_of(Path(held_out)), given.text, size, name=name)


def executable(given: Gathered, environment: str = "", *, name: str = "executable") -> Stage:
    """Keep the episodes that can be carried out again in their environment, turn by turn, as they were recorded."""
    from quintain.environments.catalog import find
    from quintain.rollout.splices import executable as carried_out

    spec = environment or next((o.environment for o in given.origins.values() if o.environment), "")
    if not spec:
        raise UsageError(f"stage {name}: got conversations without an environment; say {name}?environment=E")
    return carried_out(find(spec), name=name)


def hint(given: Gathered, pattern: str, *, name: str = "hint") -> Stage:
    """Take what the pattern matches out of what was shown; drop conversations that speak of it themselves (STaR)."""
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"pattern of {name}: got {pattern!r} ({error}); give a regular expression") from None

    def change(text: str) -> str:
        return found.sub("", text)

    return given.retelling(name, "speaks of its hint", change)


def mixture(given: Gathered, shares: str, seed: int = 0, *, name: str = "mixture") -> Stage:
    """Draw as many samples as there are, of each file or run its share: ``shares=agent.jsonl:0.2,chats.jsonl:0.8``."""
    wanted: dict[str, float] = {}
    for part in shares.split(","):
        source, _, share = part.rpartition(":")
        try:
            wanted[source.strip()] = float(share)
        except ValueError:
            raise UsageError(
                f"shares of {name}: got {part!r}; write NAME:SHARE,NAME:SHARE, such as agent.jsonl:0.2"
            ) from None
    for source in wanted:
        if source not in given.origins:
            raise UsageError(f"shares of {name}: got {source!r}; {suggestion(source, given.origins)}")
    return stages.mixture(wanted, given.part, seed=seed, name=name)


def perplexity(low: float = 1.0, high: float = float("inf"), *, name: str = "perplexity") -> Stage:
    """Keep the episodes whose perplexity under whoever sampled them is from `low` to `high`, by recorded log-probs."""
    return stages.perplexity(low, high, name=name)


def segment_reward(*, name: str = "segment_reward") -> Stage:
    """Let the turns of a token stream weigh the rewards in it; below 0 counts as 0."""
    return stages.segment_score(lambda turns: sum(turn.reward for turn in turns), name=name)


STAGES: Mapping[str, Callable[..., Stage]] = {
    "solved": stages.solved,
    "threshold": stages.threshold,
    "quantile": stages.quantile,
    "shortest": stages.shortest,
    "best": stages.best,
    "num_turns": stages.num_turns,
    "ended": stages.ended,
    "solved_share": stages.solved_share,
    "group_spread": stages.group_spread,
    "widest": stages.widest,
    "perplexity": perplexity,
    "distinct": stages.distinct,
    "distinct_states": stages.distinct_states,
    "contamination": contamination,
    "executable": executable,
    "right_calls": calls,
    "valid_turns": stages.valid_turns,
    "last_turn": stages.last_turn,
    "seat": stages.seat,
    "role": stages.role,
    "segment_reward": segment_reward,
    "turn_discount": stages.turn_discount,
    "without_end": stages.without_end,
    "hint": hint,
    "mixture": mixture,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of a stage: ``Option(name="share", kind=float, default=0.2)``."""

    name: str
    kind: type
    default: Any
    """`inspect.Parameter.empty` where it must be given"""

    def __str__(self) -> str:
        """Return it as ``share=0.2``, or ``share=NUMBER`` where it must be given."""
        told = {int: "N", float: "NUMBER", bool: "true|false", str: "TEXT"}[self.kind]
        if self.default is inspect.Parameter.empty:
            return f"{self.name}={told}"
        return f"[{self.name}={str(self.default).lower() if self.default is not None else told}]"


def options_of(make: Callable[..., Stage]) -> dict[str, Option]:
    """Return the options of the stage that `make` makes."""
    hints = typing.get_type_hints(make, globalns={**vars(typing), **make.__globals__, "Gathered": object})
    found: dict[str, Option] = {}
    for name, parameter in inspect.signature(make).parameters.items():
        kind = hints[name]
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            kind = next(part for part in typing.get_args(kind) if part is not type(None))
        if name not in ("given", "name") and kind in (int, float, bool, str):
            found[name] = Option(name=name, kind=kind, default=parameter.default)
    return found


def summary(make: Callable[..., Stage]) -> str:
    """Return the first paragraph of what documents `make`, on a line."""
    return " ".join((inspect.getdoc(make) or "").partition("\n\n")[0].split())


def stage_rows() -> list[tuple[str, str, str]]:
    """Return name, options and summary of every stage, as the list and the page show them."""
    return [
        (name, " ".join(map(str, options_of(make).values())), summary(make)) for name, make in STAGES.items()
    ]


def read_stages(specs: Sequence[str], given: Gathered) -> list[Stage]:
    """Return the stages that `specs` name; a second one of a name is called ``solved_2``.

    Raises:
        UsageError: an unknown stage or option, or a value that is none.
    """
    found: list[Stage] = []
    for spec in specs:
        kind = spec.partition("?")[0]
        num = sum(other.name.partition(":")[0].rstrip("_0123456789") == kind for other in found)
        found.append(read_stage(spec, given, name=f"{kind}_{num + 1}" if num else kind))
    return found


def read_stage(spec: str, given: Gathered, *, name: str) -> Stage:
    """Return the stage that ``NAME?option=value&option=value`` names."""
    kind, _, query = spec.partition("?")
    if kind not in STAGES:
        raise UsageError(f"--stage: got {kind!r}; {suggestion(kind, STAGES)}")
    make = STAGES[kind]
    known = options_of(make)
    values: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise UsageError(f"options of {kind}: got {query!r}; write them as name=value&name=value") from None
    for option, text in pairs:
        if option not in known:
            raise UsageError(
                f"option of {kind}: got {option!r}; "
                + (suggestion(option, known) if known else f"{kind} has no options")
            )
        values[option] = read_value(text, known[option], kind)
    for option in known.values():
        if option.default is inspect.Parameter.empty and option.name not in values:
            raise UsageError(f"stage {kind}: got no {option.name}; write it as {kind}?{option}")
    first = next(iter(inspect.signature(make).parameters), "")
    return make(given, **values, name=name) if first == "given" else make(**values, name=name)


def read_value(text: str, option: Option, kind: str) -> Any:
    """Return the value of `option` that `text` is."""
    truths = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    try:
        return truths[text.lower()] if option.kind is bool else option.kind(text)
    except (ValueError, KeyError):
        wanted = {int: "a whole number", float: "a number", bool: "true or false"}[option.kind]
        raise UsageError(f"{option.name} of {kind}: got {text!r}; give {wanted}") from None
