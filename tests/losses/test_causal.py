"""Which tokens decide the action, and entropy kept within a band."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.build import make_episode, make_turn

from quintain.losses.causal import OTHER, ActionModel, action_name, causal_weights
from quintain.losses.entropy import entropy_bonus
from quintain.types import (
    Action,
    Batch,
    Completion,
    Group,
    Outputs,
    Score,
    Task,
    ToolCall,
    Turn,
)

FILLER, LEFT, RIGHT = 7, 1, 2


def turn(ids: tuple[int, ...], action: Action) -> Turn:
    completion = Completion(token_ids=ids, logprobs=(-1.0,) * len(ids), stop="stop")
    return make_turn(prompt=(9,), action=action, completion=completion)


def groups(*turns: Turn) -> list[Group]:
    task = Task(id="t", environment="e", seed=0)
    episode = make_episode(*turns, task=task, outcome=Score(value=0.0, is_success=False))
    return [Group(task=task, trajectories=(episode,))]


@pytest.fixture
def surrogate() -> ActionModel:
    found = ActionModel(smoothing=0.01)
    left, right = Action(text="left"), Action(text="right")
    found.update(groups(*[turn((FILLER, LEFT), left), turn((FILLER, RIGHT), right)] * 10))
    found.update(groups(turn((5, 5), Action(error="unreadable"))))
    return found


def test_only_the_token_that_decides_has_weight(surrogate: ActionModel) -> None:
    filler, also, deciding = surrogate.weights((FILLER, FILLER, LEFT))
    assert filler == also == 0
    assert deciding == pytest.approx(0.5, abs=0.01)
    assert surrogate.weights((LEFT,)) == [pytest.approx(0.5, abs=0.01)]


def test_a_wider_window_takes_the_neighbours_along(surrogate: ActionModel) -> None:
    surrogate.window = 2
    surrogate.update([])
    assert surrogate.weights((FILLER, FILLER, LEFT)) == [
        0,
        pytest.approx(0.5, abs=0.01),
        pytest.approx(0.5, abs=0.01),
    ]


THOUGHT, CALL, CLOSE = (20, 21), 22, 23


def guesses(*, has_thought: bool) -> ActionModel:
    """A model of turns such as ``think: it is 4; guess(4)`` for eight numbers, or ``guess(4)`` alone."""
    found = ActionModel(smoothing=0.001)
    turns = [
        turn((*((*THOUGHT, n) if has_thought else ()), CALL, n, CLOSE), Action(text=str(n)))
        for n in range(1, 9)
        for _ in range(10)
    ]
    found.update(groups(*turns))
    return found


def test_a_thought_that_names_the_action_takes_nothing_from_what_decides() -> None:
    """½ Σ |1{a = 4} - 1/8| = 7/8 at the number that is called, with the thought and without; 0 at all else."""
    deciding = pytest.approx(7 / 8, abs=0.01)
    assert guesses(has_thought=False).weights((CALL, 4, CLOSE)) == [0, deciding, 0]
    model = guesses(has_thought=True)
    assert model.num_deciding == 2
    assert model.weights((*THOUGHT, 4, CALL, 4, CLOSE)) == [0, 0, 0, 0, deciding, 0]
    assert model.weights((*THOUGHT, 3, CALL, 4, CLOSE)) == [0, 0, 0, 0, deciding, 0], (
        "the parser reads the call"
    )


def test_equal_tokens_have_each_their_place() -> None:
    """``click 1 1``, ``click 0 1``, ``click 1 0``: half of the weight at either number, and the last two differ."""
    model = ActionModel(smoothing=0.001)
    pairs = [(x, y) for x in (1, 2) for y in (1, 2)]
    model.update(groups(*(turn((CALL, x, y), Action(text=f"{x} {y}")) for x, y in pairs for _ in range(10))))
    assert model.num_deciding == 2
    half = pytest.approx(0.5, abs=0.01)
    for x, y in pairs:
        assert model.weights((CALL, x, y)) == [0, half, half]
    one, other = (model.probabilities([(1, x), (0, y)]) for x, y in ((1, 2), (2, 1)))
    assert one.argmax() != other.argmax()


def test_the_end_is_as_long_as_two_turns_need_to_be_told_apart() -> None:
    model = ActionModel()
    model.update(groups(turn((1, CLOSE), Action(text="a")), turn((1, CLOSE), Action(text="b"))))
    assert model.num_deciding == 0, "nothing tells them apart"
    model.update(groups(turn((5, 1, CLOSE), Action(text="a")), turn((6, 1, CLOSE), Action(text="b"))))
    assert model.num_deciding == 3
    model.update(groups(turn((1, CLOSE), Action(text="a")), turn((2, CLOSE), Action(text="b"))))
    assert model.num_deciding == 3, "what was needed once is looked at"
    whole = tuple(range(100, 200))
    model.update(groups(turn((5, *whole), Action(text="a")), turn((6, *whole), Action(text="b"))))
    assert model.num_deciding <= 64


def test_nothing_seen_is_no_distribution() -> None:
    assert ActionModel().probabilities([(0, LEFT)]).shape == (0,)


def test_one_action_decides_nothing_and_rare_ones_share_a_name() -> None:
    one = ActionModel()
    one.update(groups(turn((LEFT,), Action(text="left"))))
    assert one.weights((LEFT, FILLER)) == [0, 0]
    few = ActionModel(max_actions=2)
    few.update(groups(*(turn((n,), Action(text=str(n))) for n in range(4))))
    assert list(few._actions) == ["0", OTHER]  # pyright: ignore[reportPrivateUsage]
    calls = (ToolCall(name="look"),)
    assert action_name(turn((1,), Action(text="x", tool_calls=calls))) == "look"
    calls = (ToolCall(name="guess", arguments={"number": 4}),)
    assert action_name(turn((1,), Action(text="x", tool_calls=calls))) == 'guess {"number": 4}'


def test_weights_stand_at_the_sampled_tokens_of_each_turn(
    surrogate: ActionModel, batch: Callable[..., Batch]
) -> None:
    made = batch([0, 1, 1, 0, 1, 0, 1], lengths=[5, 2], turn_id=[-1, 0, 0, -1, 1, -1, 0])
    ids = torch.tensor([9, FILLER, LEFT, 9, RIGHT, 9, FILLER])
    made = replace(made, token_ids=ids)
    weights = causal_weights(surrogate)(made)
    half = pytest.approx(0.5, abs=0.01)
    assert weights.tolist() == [0, 0, half, 0, half, 0, 0]
    prompts = batch([0, 0], turn_id=[-1, -1])
    assert causal_weights(surrogate)(prompts).tolist() == [0, 0]


def test_permuted_weights_are_the_same_numbers_elsewhere(
    surrogate: ActionModel, batch: Callable[..., Batch]
) -> None:
    lengths, moved = [9] * 12, 0
    for number in range(12):
        ids = [9, *[FILLER + 10 * (place + 1) + number for place in range(7)], LEFT]
        made = batch([0, *[1] * 8], lengths=lengths[:1], turn_id=[-1, *[0] * 8])
        made = replace(made, token_ids=torch.tensor(ids))
        plain = causal_weights(surrogate)(made).tolist()
        found = causal_weights(surrogate, is_permuted=True)(made).tolist()
        assert found == causal_weights(surrogate, is_permuted=True)(made).tolist()
        assert found[0] == 0 and sorted(found) == sorted(plain) and sum(found) > 0.1
        moved += found != plain
    assert moved >= 8


def test_entropies_of_actions_are_divided_by_their_own_lengths(
    batch: Callable[..., Batch], outputs: Callable[..., Outputs]
) -> None:
    """Entropies 2 and 4 over 2 and 4 tokens average to 1, where a broadcast over pairs would make it 1.125."""
    made = batch([0.25] * 2 + [0.125] * 4, lengths=[2, 4])
    report = entropy_bonus()(outputs([0.0] * 6, entropy=[0.5, 1.5, 1, 1, 0, 2]), made)
    assert float(report.loss) == -1.0
