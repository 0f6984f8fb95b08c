"""When the monitors raise an alarm; what differs from the defaults is written as ``entropy=0.5,window=10``.

Levels are means over the last `window` training steps; falls and rises compare these with the first `window`. An
unknown name is an error.
"""

from dataclasses import dataclass, fields, replace
from math import isfinite

from quintain.errors import ConfigError, suggestion


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The bounds of all alarms: ``Thresholds(window=3, stop_failures=0.1)``."""

    window: float = 5
    """steps that are averaged"""
    unreadable: float = 0.5
    """share of the policy's answers that cannot be read as an action; half of it as a rise since the first steps"""
    tool_failures: float = 0.1
    """share of the calls of a tool that fail without the policy's fault"""
    invalid_calls: float = 0.5
    """share of the calls of a tool that the policy wrote wrongly"""
    tool_coverage: float = 0.5
    """fall of the share of tools that are used, as a part of what it was"""
    zero_variance: float = 0.9
    """share of groups whose episodes all score the same; a note where nearly all of these are solved"""
    boundary: float = 0.25
    """rise of the share of tasks that no episode of their group solves"""
    canaries: float = 0.5
    """share of held-out tasks that an empty answer, "N/A" or words to the judge solve"""
    entropy: float = 0.25
    """fall of the entropy per token, as a part of what it was"""
    ngrams: float = 0.5
    """share of 4-grams that occurred before in the same completion"""
    diversity: float = 0.25
    """fall of the information that episodes hold on their task, as a part of what it was"""
    length: float = 2.0
    """factor by which episodes grow or shrink in tokens"""
    length_advantage: float = 0.8
    """correlation of length with advantage"""
    reward_share: float = 0.95
    """share of one reward term in the size of all, where there are several"""
    hacking: float = 0.25
    """rise of the training reward between evaluations, as a part of its size, while held-out success does not rise"""
    overoptimised: float = 0.1
    """fall of the true reward from its highest, as a part of it, while the reward model's score is above what it was"""
    judge: float = 0.1
    """fall of the agreement of verdicts with the truth, since the first round: a policy's of its own answers, or an
    evaluator's"""
    unread: float = 0.01
    """share of the verdicts of a judge or a grader that cannot be used"""
    failures: float = 0.02
    """share of episodes that fail by one owner"""
    stop_failures: float = 0.05
    """the same share from which the run stops"""
    retries: float = 0.1
    """share of attempts at an episode that broke and were begun anew"""
    cost: float = 3.0
    """factor by which the tokens per solved task grow"""
    lost_branches: float = 0.2
    """share of episodes that were to be taken up again and did not repeat"""
    chosen: float = 5.0
    """nats by which the preferred sides of pairs are less likely than under the reference"""


def thresholds(text: str) -> Thresholds:
    """Return the thresholds that `text` describes, as in ``entropy=0.5,window=10``; empty for the defaults.

    Raises:
        ConfigError: an unknown name, or a value that is no positive number.
    """
    known = [field.name for field in fields(Thresholds)]
    given: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name not in known:
            raise ConfigError(f"monitors: got {name!r}; {suggestion(name, known)}")
        given[name] = _positive(name, value)
    if given.get("window", 1) % 1:
        raise ConfigError(f"monitors: got window={given['window']}; give a whole number of steps")
    return replace(Thresholds(), **given)


def _positive(name: str, text: str) -> float:
    """Return the number that `text` is."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not (isfinite(value) and value > 0):
        raise ConfigError(f"monitors: got {name}={text!r}; give a number above 0")
    return value
