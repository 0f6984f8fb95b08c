"""TTI: horizons that grow, what is kept, and what is drawn of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quintain.data.pipeline import as_example, example_samples
from quintain.errors import ConfigError
from quintain.methods.horizon.tti import Config, accept, horizon, method, weigh
from quintain.methods.loops.replay import Buffer, UpdateSamples
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Group, Task, ToolCall, Trajectory


def episode(
    said: str | Action = "answer 3", *, won: bool = True, site: str = "a", seed: int = 0
) -> Trajectory:
    last = said if isinstance(said, Action) else Action(text=said)
    return episode_of(
        [turn_of(), turn_of((2, 3), last)],
        float(won),
        is_success=won,
        seed=seed,
        task=Task(id=f"t{seed}", environment=site, seed=seed),
    )


def alone(*episodes: Trajectory) -> list[Group]:
    return [Group(task=t.task, trajectories=(t,)) for t in episodes]


def test_horizons_grow_by_the_formula_or_as_they_are_written() -> None:
    config = Config(min_turns=10, max_turns=30, stage_steps=1)
    assert [horizon(config, step) for step in range(1, 6)] == [10, 20, 30, 30, 30]
    assert [horizon(replace(config, max_turns=25), step) for step in (1, 2, 3)] == [10, 20, 25]
    published = replace(config, turns=(10, 20, 20, 30))
    assert [horizon(published, step) for step in range(1, 7)] == [10, 20, 20, 30, 30, 30]
    assert [horizon(Config(), step) for step in (4, 5, 8, 9, 99)] == [10, 20, 20, 30, 30]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"min_turns": 9, "max_turns": 8},
            "min_turns: got 9, and max_turns=8; give min_turns of at most max",
        ),
        ({"turns": (5, 0)}, r"turns: got \(5, 0\); give the turns of each iteration, 1 or more"),
    ],
)
def test_horizons_that_are_none(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Config(**fields).check()


def test_successes_that_give_up_are_no_examples() -> None:
    call = Action(tool_calls=(ToolCall(name="answer", arguments={"text": "N/A"}),))
    groups = alone(
        episode(seed=1), episode("Answer: n/a.", seed=2), episode(call, seed=3), episode(won=False, seed=4)
    )
    assert [t.seed for group in accept(groups, ("N/A",)) for t in group.trajectories] == [1]
    assert [group.task.id for group in accept(groups, ())] == ["t1", "t2", "t3"]


def test_newer_episodes_and_rare_sites_are_drawn_more_often() -> None:
    episodes = [episode(site=site, seed=k) for k, site in enumerate("aab")]
    assert weigh(episodes, "recent") == pytest.approx([1 / 3, 2 / 3, 1])
    assert weigh(episodes, "balanced") == pytest.approx([1 / 12 + 1 / 8, 2 / 12 + 1 / 8, 3 / 12 + 1 / 4])
    buffer = Buffer(method(Config(batch_size=1)).buffer)
    buffer.add(1, alone(*episodes))
    buffer.weigh(weigh(buffer.episodes, "recent"))
    drawn = np.bincount([buffer.draw(k)[0].trajectories[0].seed for k in range(3_000)], minlength=3) / 3_000
    assert drawn == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.03)


def test_what_is_imitated_is_what_filtered_imitation_imitates() -> None:
    """Of one step, drawn whole, it is rejection sampling: the same streams with the same weights."""
    replay = method(Config())
    buffer = Buffer(replay.buffer)
    played = alone(*(episode(seed=k, won=k % 3 > 0) for k in range(9)))
    buffer.add(1, replay.reward(played))
    found = replay.updates[0].target(buffer.draw(5), None)  # pyright: ignore[reportArgumentType]
    assert isinstance(found, UpdateSamples)
    kept = [group.trajectories[0] for group in played if group.trajectories[0].is_success]
    wanted = example_samples([as_example(t) for t in kept])
    assert len(found.samples) == len(wanted) == 6
    for sample, other in zip(found.samples, wanted, strict=True):
        assert sample.token_ids.tolist() == other.token_ids.tolist()
        assert sample.loss_weight.tolist() == other.loss_weight.tolist()


def test_old_iterations_are_in_the_loss() -> None:
    replay = method(Config(batch_size=4))
    buffer = Buffer(replay.buffer)
    for step in (1, 2):
        buffer.add(step, alone(*(episode(seed=10 * step + k) for k in range(2))))
    drawn = {group.trajectories[0].seed for group in buffer.draw(3)}
    assert drawn == {10, 11, 20, 21}
