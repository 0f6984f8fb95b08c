"""Agent-R, RRO, E2CL and StepAgent: which steps they find, what they make of them, and that they train."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.methods.test_training import Coin, interrupting, resume, rows, train, weights

from quintain.benchmarks.formulas.steps import acted
from quintain.benchmarks.labs.pupil import Pupil, RolloutCollector, new_pupil, tasks_from
from quintain.data.pipeline import example_samples
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.methods.method import Collector
from quintain.methods.preference import agent_r
from quintain.methods.preference.agent_r import Revision, Revisions
from quintain.rollout.splices import can_be_carried_out, states_in
from quintain.rollout.tree import upper_bound
from quintain.store.run import Run
from quintain.types import Action, Group, StepResult, Task

GARDEN = f"{__file__}:Garden"
BLOCKS = "plan?blocks=3&irreversible=true"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("quintain.training.corpus.NUM_EPISODES", 4)


FIELDS: dict[str, dict[str, Any]] = {
    "agent_r": {
        "demonstrations": 24,
        "imitation_epochs": 12,
        "mistakes": 0.4,
        "tasks": 6,
        "branches": 3,
        "expansions": 2,
    },
}
START = {"environment": GARDEN, "max_turn_tokens": 4}


class Garden(Coin):
    """Go on twice; who steps aside has to come back first."""

    max_turns = 5

    def reset(self, task: Task) -> str:
        self.place, self.is_aside = 0, False
        return f"Garden {task.seed % 5}."

    def step(self, action: Action) -> StepResult:
        is_valid = action.text in self.legal_actions()
        if is_valid:
            self.is_aside = action.text == "aside" or (self.is_aside and action.text != "back")
            self.place += action.text == "on"
        done = self.place == 2
        seen = "Done." if done else "Aside." if self.is_aside else f"At {self.place}."
        return StepResult(
            observation=seen, reward=float(done), is_terminated=done, is_success=done, is_valid=is_valid
        )

    def legal_actions(self) -> tuple[str, ...]:
        return ("back", "wait") if self.is_aside else ("on", "aside")

    def expert_action(self) -> Action:
        return Action(text="back" if self.is_aside else "on")

    def snapshot(self) -> tuple[int, bool]:
        return self.place, self.is_aside

    def restore(self, saved: tuple[int, bool]) -> None:
        self.place, self.is_aside = saved

    def state_key(self) -> str:
        return f"{self.place} {self.is_aside}"


@pytest.mark.parametrize("recipe", FIELDS)
def test_it_trains(recipe: str, tmp_path: Path) -> None:
    folder = train(recipe, tmp_path / recipe, **{**START, **FIELDS[recipe]})
    found = rows(folder)
    assert len(found) == 3 and weights(folder / "start") != weights(folder / "model")
    if recipe == "agent_r":
        first = found[1]
        assert first["agent_r/failures"] >= first["agent_r/revised"] > 0
        assert first["data/revised"] == first["data/good"] + first["agent_r/revised"] == first["data/kept"]
        with Run.open(folder, writable=False) as run:
            made = list(run.trajectories(step=1, phase="revised"))
        assert len(made) == first["agent_r/revised"] + first["agent_r/shows_other"]


@pytest.mark.parametrize("recipe", FIELDS)
def test_a_broken_off_run_resumes_bit_for_bit(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {**START, **FIELDS[recipe]}
    whole, stopped = train(recipe, tmp_path / "whole", **fields), tmp_path / "stopped"
    with monkeypatch.context() as patch:
        interrupting(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, stopped, **fields)
    resume(stopped)
    assert weights(stopped / "model") == weights(whole / "model") and rows(stopped) == rows(whole)


def tree_of(world: str, rate: float, tasks: int, tries: int) -> tuple[Pupil, list[Group]]:
    """Return a player without knowledge, and episodes of an expert who errs, a group for each task."""
    pupil = new_pupil([world], seed=0, model="micro?tokens=words", agent="text")
    drawn = tasks_from(world, tasks)
    shown = [pupil.show(world, drawn, noisy(rate), seed=seed) for seed in range(tries)]
    return pupil, [Group(task=own[0].task, trajectories=tuple(own)) for own in zip(*shown, strict=True)]


def put_right(world: str, *, undo_turns: int, tasks: int, rate: float) -> tuple[Revisions, list[Revision]]:
    """Return what became of an erring expert's failures, and the ways that were tried."""
    config = agent_r.Config(environment=world, undo_turns=undo_turns, drop=0.1)
    revisions = Revisions(config, good=0.5)
    pupil, groups = tree_of(world, rate, tasks, 8)
    with pupil.acting(world) as rollout:
        collector = cast(Collector, RolloutCollector(rollout=rollout, seed_of_run=0))
        revisions.put_right(collector, 1, groups)
    tried = revisions._found(groups)  # pyright: ignore[reportPrivateUsage]
    return revisions, tried


def test_what_is_put_right_can_be_carried_out_and_only_mistakes_have_no_weight() -> None:
    world = "web?goal=open&depth=2&popups=0&dead_ends=3&items=2"
    revisions, tried = put_right(world, undo_turns=1, tasks=24, rate=0.8)
    made = revisions.examples
    assert len(made) > 10 and len(made) >= 0.8 * len(tried)
    repeats = can_be_carried_out(find(world))
    by_beginning = {each.beginning: each for each in tried}
    for example in made:
        whole, weights_of = example.trajectory, example.weights
        assert repeats(whole) and whole.is_success and weights_of is not None
        zeros = [not own.any() for own in weights_of]
        until = zeros.index(False)
        each = by_beginning[whole.task.id, agent_r.actions_of(whole)[:until]]
        assert zeros == [True] * until + [False] * (len(zeros) - until) and until == each.until
        said = agent_r.actions_of(whole)[until:]
        assert [own.text for own in each.script] == list(said)
        assert len(each.back) <= 1
        trained = example_samples([example])[0]
        words = [i for turn in whole.turns[until:] for i in turn.completion.token_ids]
        assert trained.token_ids[trained.loss_weight > 0].tolist() == words, "token by token"


def test_without_a_way_back_nothing_is_put_right_where_steps_are_for_good() -> None:
    revisions, tried = put_right(BLOCKS, undo_turns=0, tasks=40, rate=0.5)
    assert len(tried) > 20 and revisions.num_other > 0.9 * len(tried)
    states = states_in(find(BLOCKS))
    for example in revisions.examples:
        until = [not own.any() for own in example.weights or ()].index(False)
        seen = states(example.trajectory)
        assert seen[until] in seen[:until], "a mistake without effect"


def test_selection_is_that_of_the_paper() -> None:
    assert upper_bound(0.5, 10, 3, 0.25 / 2**0.5) == pytest.approx(0.719022, abs=1e-6)


def test_what_an_invalid_action_led_to_puts_nothing_right() -> None:
    lost, won = acted((0, 1), 0.0, 0), acted((0, 0), 1.0, 1)
    assert agent_r.partners([lost, won], good=0.5, gap=0.2) == [(lost, won)]
    invalid = replace(won, turns=(won.turns[0], replace(won.turns[1], is_valid=False)))
    assert agent_r.partners([lost, invalid], good=0.5, gap=0.2) == []


def test_the_cut_is_after_the_first_bad_step_behind_the_parting() -> None:
    assert agent_r.first_bad(["good", "bad", "uncertain", "bad"], 0) == 2
    assert agent_r.first_bad(["good", "bad", "uncertain", "bad"], 2) == 4
    assert agent_r.first_bad(["good", "uncertain"], 0) is None
    tree = [acted((0, 0), 1.0, 0), acted((0, 1, 1), 0.0, 1), acted((0, 1, 0), 0.0, 2), acted((1,), 0.5, 3)]
    assert agent_r.verdicts(tree, tree[1], 0.5) == ["uncertain", "bad", "good"]


def test_rounds_ask_for_better_and_better_episodes() -> None:
    assert agent_r.Config().good == (0.5, 0.7, 0.9)
    made = agent_r.method(agent_r.Config(undo_turns=0))
    assert not made.needs.snapshots and agent_r.method(agent_r.Config()).needs.legal_actions
