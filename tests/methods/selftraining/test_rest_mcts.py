"""ReST-MCTS*: trees from recorded episodes, a value model that learns from them, solutions that are imitated."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.build import make_path, shorten_corpus

from quintain.data.pipeline import PipelineResult
from quintain.methods.find import find_method
from quintain.methods.loops.recall import remember
from quintain.methods.method import CombinedState
from quintain.methods.selftraining import rest_mcts
from quintain.store.run import Run
from quintain.types import Group, Stop


def test_the_shortest_different_solutions_are_imitated() -> None:
    ways = [(3, 4, 5), (3, 5), (3, 5), (6, 7, 8, 9)]
    own = [make_path("a", way, stop=Stop.TERMINATED, index=n) for n, way in enumerate(ways)]
    own.append(make_path("a", (9,), index=4))
    made = rest_mcts.method(rest_mcts.Config(keep=2)).build(
        [Group(task=own[0].task, trajectories=tuple(own))]
    )
    assert isinstance(made, PipelineResult)
    assert [len(e.trajectory.turns) for e in made.examples] == [3, 2]


@pytest.mark.parametrize("has_values", [True, False])
@pytest.mark.slow
def test_each_task_of_a_round_has_a_tree_that_grows(
    has_values: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_corpus(monkeypatch)
    torch.set_num_threads(1)
    found = find_method("rest_mcts")
    config: Any = found.config_class(
        environment="sokoban?size=3&walls=0&view=grid&scramble=8", model="micro", agent="scored", demonstrations=0,
        steps=2, eval_every=5, eval_episodes=2, tasks=4, branches=3, rollout_turns=2, expansions=3,
        has_values=has_values,
    )  # fmt: skip
    config.check()
    method, again = rest_mcts.method(config), rest_mcts.method(config)
    with Run.create(tmp_path / "run", recipe="rest_mcts", config=asdict(config)) as run:
        method.train(run, config)
        rows = list(run.metrics())[1:]
        lengths = [len(t.turns) for t in run.trajectories(step=1, phase="train")]
        remember(run, again.state)
    assert lengths[:12] == [min(n, 3) for n in lengths[:12]] and max(lengths) >= 4, (
        "trees grow beyond their roots"
    )
    assert len(rows) == 2 and rows[0]["mcts/targets"] > 0
    assert rows[0]["mcts/value_error"] > 0.3, "the first search knows nothing"
    assert (rows[1]["mcts/value_error"] < 0.3) == has_values
    seen = "#####\n#@$.#\n#---#\n#---#\n#####"
    assert isinstance(method.state, CombinedState) and isinstance(again.state, CombinedState)
    (told,), (known,) = (
        [part(seen) for part in state.parts] or [0.0] for state in (again.state, method.state)
    )
    assert told == known and (told > 0) == has_values, "the journal holds all that it learns"
