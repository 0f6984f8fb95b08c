"""The same edges for every idea of credit: alone, without a difference, broken, silent, and unpaid at the end."""

from collections.abc import Callable, Sequence
from importlib import import_module
from math import exp
from pathlib import Path

import numpy as np
import pytest
from tests.credit.conftest import FAILURE, group, trajectory

import quintain.credit
from quintain.credit.anchor import state_anchored
from quintain.credit.baseline import subtract_others
from quintain.credit.bilevel import gae_bilevel
from quintain.credit.discounted import discounted_return
from quintain.credit.gae import gae_tokens, gae_turns, join_advantages
from quintain.credit.group import group_process, group_relative, leave_one_out
from quintain.credit.layout import Critic
from quintain.credit.normaliser import normalise_over
from quintain.credit.outcome import outcome_return
from quintain.credit.progress import progress_rewards
from quintain.credit.segments import segment_weights
from quintain.credit.selection import exponential_weights
from quintain.credit.step_value import step_value
from quintain.credit.turn_group import turn_group_relative
from quintain.credit.whiten import reinforce_plus_plus, reinforce_plus_plus_baseline, whiten
from quintain.errors import InvariantError
from quintain.types import Credit, Group, Score, Trajectory

Idea = Callable[[Sequence[Group]], Credit]


def scored(groups: Sequence[Group]) -> list[Trajectory]:
    return [t for g in groups for t in g.scored]


def unvalued(groups: Sequence[Group]) -> Critic:
    """A critic that expects nothing."""
    return Critic(values=[[np.zeros(len(u.completion.token_ids)) for u in t.turns] for t in scored(groups)])


def zeros(groups: Sequence[Group]) -> list[list[float]]:
    return [[0.0] * len(t.turns) for t in scored(groups)]


def paid(groups: Sequence[Group]) -> list[list[float]]:
    return [[turn.reward for turn in t.turns] for t in scored(groups)]


COMPARING: dict[str, Idea] = {
    "group": lambda g: group_relative(g, std="none"),
    "leave one out": leave_one_out,
    "process": lambda g: group_process(g, std="none"),
    "turn groups": lambda g: turn_group_relative(g, std="none"),
    "anchored states": lambda g: state_anchored(g, std="none", discount=1.0),
    "group and batch": lambda g: normalise_over(g, std="none"),
    "others": lambda g: subtract_others(discounted_return(g)),
    "whitened outcomes": lambda g: whiten(outcome_return(g), unit="trajectory"),
    "whitened over groups": lambda g: reinforce_plus_plus_baseline(g),
}
"""Ideas that compare: what is alone, or like all others, is worth exactly nothing."""
ALONE: dict[str, Idea] = {
    "outcome": outcome_return,
    "return": discounted_return,
    "gae over tokens": lambda g: gae_tokens(g, unvalued(g), gae_lambda=1.0),
    "gae over turns": lambda g: gae_turns(g, unvalued(g), gae_lambda=1.0),
    "bi-level gae": lambda g: gae_bilevel(g, unvalued(g), turn_discount=1.0),
    "decoupled gae": lambda g: join_advantages(
        gae_tokens(g, unvalued(g), gae_lambda=0.5), gae_turns(g, unvalued(g))
    ),
    "step values": lambda g: step_value(g, zeros(g)),
    "progress": lambda g: discounted_return(progress_rewards(g, zeros(g), beta=0.0)),
    "segments": lambda g: segment_weights(g, paid(g), discount=1.0),
    "positive weights": exponential_weights,
    "whitened returns": reinforce_plus_plus,
}
IDEAS = {**COMPARING, **ALONE}


def numbers(credit: Credit) -> list[float]:
    return [float(x) for turns in credit.advantages for array in turns for x in array]


@pytest.mark.parametrize("name", COMPARING)
def test_alone_or_without_a_difference_is_exactly_zero(name: str) -> None:
    alone = [group(trajectory([0.0, 0.5], states=["a", "b"]))]
    if name not in ("process", "others"):
        assert set(numbers(COMPARING[name](alone))) == {0.0}
    equal = [group(*(trajectory([0.5], states=["a"]) for _ in range(3)))]
    assert numbers(COMPARING[name](equal)) == [0.0] * 6
    assert set(numbers(COMPARING[name]([group(trajectory([0.5], states=["a"]))]))) == {0.0}


@pytest.mark.parametrize("name", IDEAS)
def test_a_failure_counts_as_if_it_had_not_been_there(name: str) -> None:
    good, bad = trajectory([0.0, 1.0], states=["a", "b"]), trajectory([0.5, 0.0], states=["a", "b"])
    broken = trajectory([9.0], states=["a"], outcome=FAILURE)
    without, among = (IDEAS[name]([group(*own)]) for own in ((good, bad), (good, broken, bad)))
    assert len(among.trajectories) == len(without.trajectories) == 2
    assert numbers(among) == numbers(without)
    assert IDEAS[name]([group(broken)]).trajectories == ()


@pytest.mark.parametrize("name", IDEAS)
def test_a_reward_that_is_no_number_never_becomes_credit(name: str) -> None:
    outcome = Score(value=float("nan"), is_success=False)
    odd = trajectory([float("nan")], states=["a"], outcome=outcome)
    with pytest.raises(InvariantError, match=r"finite Score|record a Failure"):
        IDEAS[name]([group(trajectory([1.0], states=["a"]), odd)])


@pytest.mark.parametrize("name", IDEAS)
def test_turns_without_a_token_get_nothing_and_break_nothing(name: str) -> None:
    silent = trajectory([1.0, 0.5, 0.0], tokens=[0, 2, 0], states=["a", "b", "c"])
    mute = trajectory([1.0], tokens=[0], states=["a"])
    other = trajectory([0.0], tokens=[1], states=["b"])
    credit = IDEAS[name]([group(silent, mute, other)])
    assert [[len(a) for a in turns] for turns in credit.advantages] == [[0, 2, 0], [1]]
    assert np.isfinite(numbers(credit)).all()


E = exp(0.5)
UNPAID: dict[str, list[float]] = {
    "group": [0.5, 0.5, -0.5, -0.5],
    "leave one out": [1, 1, -1, -1],
    "process": [0.5, -0.25, -0.5, -0.25],
    "turn groups": [0.5, 0, -0.5, 0],
    "anchored states": [1, 0.5, -1, -0.5],
    "group and batch": [0.5, 0.5, -0.5, -0.5],
    "others": [1, 0, -1, -1],
    "whitened outcomes": [1, 1, -1, -1],
    "whitened over groups": [1, 1, -1, -1],
    "outcome": [1, 1, 0, 0],
    "return": [1, 0, 0, 0],
    "gae over tokens": [1, 0, 0, 0],
    "gae over turns": [1, 0, 0, 0],
    "bi-level gae": [1, 0, 0, 0],
    "decoupled gae": [1, 0, 0, 0],
    "step values": [1, 0, 0, 0],
    "progress": [1, 0.5, 0, 0],
    "segments": [0.5, 0, 0, 0],
    "positive weights": [E, E, 1 / E, 1 / E],
    "whitened returns": [3**0.5, -(3**-0.5), -(3**-0.5), -(3**-0.5)],
}
"""Two episodes of two turns with one token each; the first was paid 1 for its first turn, nothing else was paid."""


@pytest.mark.parametrize("name", IDEAS)
def test_a_last_turn_without_reward_is_a_turn_like_any_other(name: str) -> None:
    early, never = (trajectory([r, 0.0], tokens=[1, 1], states=["s", "u"]) for r in (1.0, 0.0))
    assert numbers(IDEAS[name]([group(early, never)])) == pytest.approx(UNPAID[name], abs=1e-6)


def test_every_idea_states_its_unit_and_what_it_does_with_one() -> None:
    folder = Path(next(iter(quintain.credit.__path__)))
    for name in sorted(file.stem for file in folder.glob("*.py")):
        text = import_module(f"quintain.credit.{name}").__doc__ or ""
        if name not in ("__init__", "layout"):
            words = " ".join(text.split())
            assert "Unit: " in words, name
            assert "Singleton rule: " in words, name
