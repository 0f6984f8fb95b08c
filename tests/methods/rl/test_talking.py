"""Tokens before the words of an action are filler; a step says how undecided both are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_turn
from tests.methods.rl.conftest import Runner

from quintain.errors import ConfigError
from quintain.losses.causal import ActionModel
from quintain.methods.method import CombinedState
from quintain.methods.rl import coso
from quintain.methods.rl.parts.measures import acts_from, measure_entropy_of_actions
from quintain.store.run import Run
from quintain.types import Action, Completion, Group, Score, Stop, Task, ToolCall, Trajectory, Turn

WORDS = ("Thought:", " left", " is", " good.", " Action:", " go", " left", "<end>")


def decode(ids: Sequence[int]) -> str:
    return "".join(WORDS[token] for token in ids)


def turn(ids: tuple[int, ...], action: Action, logprobs: tuple[float, ...] = ()) -> Turn:
    completion = Completion(token_ids=ids, logprobs=logprobs or (-1.0,) * len(ids), stop="stop")
    return make_turn(prompt=(9,), action=action, completion=completion)


@pytest.mark.parametrize(
    ("ids", "action", "start"),
    [
        (tuple(range(8)), Action(text="go left"), 5),
        (tuple(range(8)), Action(text="left"), 6),
        ((5, 6, 7), Action(text="go left"), 0),
        ((0, 5, 6), Action(text="go left"), 1),
        ((0, 1, 2), Action(text="go left"), 0),
        ((0, 5, 6), Action(tool_calls=(ToolCall(name="go"),)), 0),
        ((5,), Action(text="go"), 0),
    ],
)
def test_an_action_begins_where_its_words_do(ids: tuple[int, ...], action: Action, start: int) -> None:
    assert acts_from(turn(ids, action), decode) == start


def groups(*turns: Turn) -> list[Group]:
    task = Task(id="t", environment="e", seed=0)
    outcome = Score(value=0.0, is_success=False)
    ended: dict[str, Any] = {"stop": Stop.TERMINATED, "seed": 0, "group": "g", "index": 0}
    return [Group(task=task, trajectories=(Trajectory(task=task, turns=turns, outcome=outcome, **ended),))]


def test_a_step_by_value() -> None:
    go = Action(text="go left")
    told = groups(turn((0, 4, 5, 6), go, (-2.0, -4.0, -0.5, -0.1)), turn((5, 6), go, (-0.3, -0.3)))
    assert measure_entropy_of_actions(told, decode) == {
        "entropy/filler": pytest.approx(3.0),
        "entropy/action": pytest.approx(0.3),
    }
    assert measure_entropy_of_actions(groups(turn((5, 6), go)), decode) == {"entropy/action": 1.0}
    assert measure_entropy_of_actions(groups(turn((0, 1), Action(error="?"))), decode) == {}


@pytest.mark.slow
def test_coso_says_how_undecided_filler_and_action_are(tmp_path: Path) -> None:
    folder = Runner(tmp_path).train(
        "coso",
        agent="react?filler=1&max_tokens=40",
        tasks=2,
        group_size=3,
        imitation_epochs=60,
        demonstrations=8,
    )
    with Run.open(folder, writable=False) as run:
        rows = [row for row in run.metrics() if "entropy/action" in row]
    assert rows and all(row["entropy/action"] > 0 for row in rows)
    assert any(row.get("entropy/filler", 0) > 0 for row in rows)


def test_the_surrogate_tells_as_many_actions_apart_as_asked(runner: Any) -> None:
    with pytest.raises(ConfigError, match=r"actions: got 0; give an integer of 1 or more"):
        runner.train("coso", tasks=2, group_size=3, actions=0)
    method = coso.method(coso.Config(actions=2))
    assert isinstance(method.state, CombinedState)
    (surrogate,) = method.state.parts
    assert isinstance(surrogate, ActionModel) and surrogate.max_actions == 2
