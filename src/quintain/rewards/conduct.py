"""How the episode went: the environment's own reward, success, format, validity, new states.

Penalties are measured per turn as -1 and weighed by the caller (RAGEN: 0.1 per turn whose format is broken, arXiv
2504.20073; GiGPO: 0.1 per invalid action, 2505.10978). What could not be read (`Action.error`) and what could not be
carried out (`Turn.is_valid`) are two things; a turn that could not be read is not counted again as invalid.
"""

from quintain.rewards.terms import Term, acts
from quintain.types import Trajectory, Turn

ILLEGAL = "illegal"
"""The reward term in which an environment counts the unlawful acts of a step."""


def environment_reward(weight: float = 1.0) -> Term:
    """Return the term "environment": the turn rewards as they came."""
    return Term(name="environment", measure=lambda t: [turn.reward for turn in t.turns], weight=weight)


def success(weight: float = 1.0) -> Term:
    """Return the term "success": 1 on the last turn of an episode that solved its task."""
    return Term(name="success", measure=lambda t: float(t.is_success), weight=weight)


def format_penalty(weight: float = 0.1) -> Term:
    """Return the term "format": -1 for every turn whose completion could not be read."""
    return Term(
        name="format",
        measure=lambda t: [-float(turn.action.error is not None) for turn in t.turns],
        weight=weight,
    )


def well_formed(weight: float = 1.0) -> Term:
    """Return the term "well_formed": the share of actions that could be read, in [0, 1], on the last turn."""
    return Term(
        name="well_formed",
        measure=lambda t: sum(turn.action.error is None for turn in acts(t)) / max(len(acts(t)), 1),
        weight=weight,
    )


def invalid_action_penalty(weight: float = 0.1) -> Term:
    """Return the term "invalid": -1 for every readable action that the environment could not carry out."""
    return Term(
        name="invalid",
        measure=lambda t: [-float(not turn.is_valid and turn.action.error is None) for turn in t.turns],
        weight=weight,
    )


def refused_call_penalty(weight: float = 0.1) -> Term:
    """Return the term "refused": -1 for every call of a turn that a guard refused; see docs/guards.md."""
    return Term(
        name="refused",
        measure=lambda t: [
            -float(sum(error.cause == "refused" for error in turn.tool_errors)) for turn in t.turns
        ],
        weight=weight,
    )


def illegal_act_penalty(weight: float = 0.1) -> Term:
    """Return the term "illegal": minus the unlawful acts of a turn, which the environment says in `ILLEGAL`."""
    return Term(
        name=ILLEGAL,
        measure=lambda t: [-turn.reward_terms.get(ILLEGAL, 0.0) for turn in t.turns],
        weight=weight,
    )


def pay_executed(weight: float = 0.2) -> Term:
    """Return the term "executed": 1 for every turn whose action was read and carried out (MT-GRPO, 2505.11821)."""
    return Term(
        name="executed",
        measure=lambda t: [
            float(turn.is_valid and turn.action.error is None and not turn.is_internal) for turn in t.turns
        ],
        weight=weight,
    )


def new_state_bonus(weight: float = 0.1) -> Term:
    """Return the term "new_state": 1 for every turn after which a state is met for the first time in the
    episode.

    The state before the first action and turns without a state key count nothing.
    """
    return Term(
        name="new_state", measure=lambda t: [float(is_new) for is_new in new_states(t)], weight=weight
    )


def new_states(trajectory: Trajectory) -> list[bool]:
    """Return for each turn whether the state after it is known and was not met before in the episode."""
    keys = [turn.state_key for turn in trajectory.turns]
    after = [*keys[1:], None]
    return [key is not None and key not in keys[: index + 1] for index, key in enumerate(after)]


def verdict(*, right: float = 1.0, wrong: float = -1.0) -> Term:
    """Return the term "verdict": `right` or `wrong` on the last turn, whether the episode solved its task or not."""
    return Term(name="verdict", measure=lambda t: right if t.is_success else wrong)


def punish_broken_calls(weight: float = 0.5) -> Term:
    """Return the term "broken_calls": -1 on the last turn where a call of the episode failed by the agent's own fault.

    That is an unknown tool, wrong arguments, or code that raised. What tools and sandboxes break is no fault of the
    agent, and a call that was not carried out cannot have failed (ToRL, arXiv 2503.23383).
    """
    return Term(name="broken_calls", measure=lambda t: -float(any(map(is_broken, t.turns))), weight=weight)


def is_broken(turn: Turn) -> bool:
    """Whether a call of `turn` failed by the agent's own fault."""
    causes = {error.cause for error in turn.tool_errors}
    return "invalid_call" in causes or (not turn.is_valid and turn.action.error is None and not causes)
