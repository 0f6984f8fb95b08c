"""RL of Thoughts learns from recorded blocks alone, masks what may not be done, and changes no weight of the model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.build import make_episode, make_group, make_turn
from tests.methods.test_training import interrupting, resume, rows, train

from quintain.agents.navigated import Asked, read_asked
from quintain.methods.search.rlot import FILE, Config, Navigation, Table, Transition, read_transitions
from quintain.models.navigator import BLOCKS, load_navigator
from quintain.store.run import Run
from quintain.types import Stop, Trajectory, as_text

START, MIDDLE, LATE = (3, 3, 3, 3, 1, 1, 1), (1, 3, 1, 2, 1, 2, 1), (3, 3, 3, 1, 1, 3, 3)


def show_scores(scores: Sequence[int], legal: str = "step, decompose, debate, refine, stop") -> str:
    return f"After 0 of 2 steps: 7\nScores: {' '.join(map(str, scores))}\nBlocks: {legal}"


def episode(*blocks: tuple[str, str, float], stop: Stop = Stop.TERMINATED) -> Trajectory:
    return make_episode(
        *(make_turn(shows=text, text=says, reward=paid) for text, says, paid in blocks), stop=stop
    )


def test_a_block_is_paid_what_was_paid_until_the_next_choice() -> None:
    found = read_transitions(
        episode(
            ("Rate from 1 to 3", "3 3 3 3 1 1 1", 0.0),
            (show_scores(START, "step, decompose, debate"), "step", 0.0),
            ("Next: 7 + 5 = ?", "12", 0.0),
            ("Rate from 1 to 3", "1 3 1 2 1 2 1", 0.4),
            (show_scores(MIDDLE), "stop", -0.5),
        )
    )
    first = Asked(START, ("step", "decompose", "debate"))
    assert found == [
        Transition(first, "step", 0.4, Asked(MIDDLE, BLOCKS)),
        Transition(Asked(MIDDLE, BLOCKS), "stop", -0.5, None),
    ]
    cut = read_transitions(
        episode((show_scores(START), "step", 0.4), (show_scores(LATE), "step", 0.0), stop=Stop.CUT)
    )
    assert [each.then for each in cut] == [Asked(LATE, BLOCKS)], "what follows the cut is not known"
    assert read_transitions(episode((show_scores(START, "step, debate"), "refine", 0.0))) == []


def test_what_is_no_question_for_a_navigator_is_none() -> None:
    assert read_asked("Scores: 3 2\nBlocks: step") is None
    assert read_asked(show_scores(START).replace("Scores", "Points")) is None
    assert read_asked(show_scores(START, "hop, step")) == Asked(START, ("step",))


def test_without_a_future_it_is_a_regression_on_rewards() -> None:
    config = Config(discount=0.0, updates=200, navigator_rate=5e-3, polyak=1.0)
    learned = Navigation(config, seed=2)
    paid = {"step": 0.5, "refine": -0.25, "stop": 1.0}
    blocks = [
        episode((show_scores(START), block, reward), (show_scores(LATE), "stop", 0.1))
        for block, reward in paid.items()
    ]
    learned.update([make_group(each) for each in blocks])
    with torch.no_grad():
        values = learned.navigator(torch.tensor([START], dtype=torch.float32))[0]
    for block, reward in paid.items():
        assert float(values[BLOCKS.index(block)]) == pytest.approx(reward, abs=0.02)


def test_nothing_is_learned_of_held_out_tasks() -> None:
    learned, untouched = Navigation(Config(), seed=1), Navigation(Config(), seed=1)
    played = episode((show_scores(START), "step", 0.5), (show_scores(LATE), "stop", 0.5))
    learned.update([make_group(replace(played, task=replace(played.task, split="eval")))])
    scores = torch.tensor([START], dtype=torch.float32)
    assert torch.equal(learned.navigator(scores), untouched.navigator(scores)) and learned.num_steps == 1


def test_what_is_not_legal_behind_a_block_is_not_in_its_target() -> None:
    learned = Navigation(Config(discount=0.5), seed=0)
    then = Asked(MIDDLE, ("decompose",))
    table = Table(
        [Transition(Asked(START, BLOCKS), "step", 0.25, then), Transition(then, "decompose", 1.0, None)]
    )
    assert table.legal.tolist()[0] == [False, True, False, False, False] and table.is_over.tolist() == [
        False,
        True,
    ]
    assert learned.exploit(then) == "decompose"


def test_exploring_is_any_legal_block_and_ends() -> None:
    learned = Navigation(Config(explored_steps=4, least_explored=0.25), seed=0)
    task = episode((show_scores(START), "step", 0.0)).task
    asked = Asked(START, ("step", "debate"))
    assert {learned.explore(asked, task, number) for number in range(20)} == {"step", "debate"}
    assert [learned.explored for learned.num_steps in (0, 1, 2, 3, 9)] == [1.0, 0.75, 0.5, 0.25, 0.25]


SOLVER = {"environment": "solver", "tasks": 3, "steps": 2, "eval_every": 1, "demonstrations": 0}


def test_it_trains_a_navigator_and_no_model(tmp_path: Path) -> None:
    folder = train("rlot", tmp_path / "run", **SOLVER)
    with Run.open(folder, writable=False) as run:
        assert len({*run.weights().values()}) == 1, "no weight changed"
        played = [t for step in (1, 2) for t in run.trajectories(step=step, phase="train")]
        groups = {step: {t.group for t in run.trajectories(step=step, phase="train")} for step in (1, 2)}
    for trajectory in played:
        for turn in trajectory.turns:
            asked = read_asked(as_text(turn.observation))
            assert asked is not None and turn.action.text in asked.legal and turn.is_valid
    config = Config(tasks=3)
    learned = Navigation(config, config.seed)
    for step in (1, 2):
        learned.update([make_group(t) for t in played if t.group in groups[step]])
    kept = load_navigator(folder / FILE).state_dict()
    assert all(torch.equal(kept[name], each) for name, each in learned.navigator.state_dict().items())
    assert rows(folder)[-1]["rlot/blocks"] == sum(len(t.turns) for t in played if t.group in groups[2]) / 3


@pytest.mark.slow
def test_a_resumed_run_has_its_navigator_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, part = train("rlot", tmp_path / "whole", **SOLVER), tmp_path / "part"
    with monkeypatch.context() as patch:
        interrupting(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train("rlot", part, **SOLVER)
    resume(part)
    one, other = (load_navigator(folder / FILE).state_dict() for folder in (whole, part))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert rows(whole)[-1] == rows(part)[-1]
