"""Experiments on what a policy explores: what controls keep, and that null worlds are null; runs are very short."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from quintain.data.pipeline import num_trained
from quintain.environments.noisy import noisy
from quintain.environments.protocol import Environment
from quintain.errors import DataError
from quintain.methods.imitation import steca as method
from quintain.testing import pupil
from quintain.testing.pupil import Pupil, RolloutCollector, new_pupil, tasks_from
from quintain.types import Action, StepResult, Task
from quintain.warm_start.start import expert_action
from quintain_evidence.experiments.imitation import ire_vla, lam_simulator, steca

SITE = "web?goal=open&depth=2&popups=0&dead_ends=1"
OLD = NEW = f"{__file__}:Coin"
TOOLS = "toolbox?steps=1&tools=2&kinds=4"


class Coin(Environment):
    """Say heads or tails."""

    max_turns = 1

    def reset(self, task: Task) -> str:
        self.side = "heads" if task.rng.random() < 0.5 else "tails"
        return "It is in the air."

    def step(self, action: Action) -> StepResult:
        is_right = action.text == self.side
        return StepResult(
            observation="It fell.", reward=float(is_right), is_terminated=True, is_success=is_right
        )

    def legal_actions(self) -> tuple[str, ...]:
        return ("heads", "tails")

    def expert_action(self) -> Action:
        return Action(text=self.side)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pupils be as small as there are, and read little before."""

    def made(worlds: Any, *, seed: int, model: str = "", texts: Any = (), agent: str = "auto") -> Pupil:
        return new_pupil(worlds, seed=seed, model="micro?tokens=words", texts=texts, agent=agent)

    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 6)
    monkeypatch.setattr(pupil, "build_agent", partial(pupil.build_agent, max_tokens=6))
    monkeypatch.setattr(pupil, "NUM_PROBED", 4)
    for module in (ire_vla, lam_simulator, steca):
        monkeypatch.setattr(module, "new_pupil", made)
    torch.set_num_threads(1)


@pytest.mark.slow
def test_arms_of_calibration_are_measured_alike() -> None:
    options = {
        "world": SITE, "block": 0, "episodes": 12, "explored": 3, "samples": 1,
        "first": 2, "low": 0.0, "high": 1.0, "updates": 1, "held_out": 8, "tried": 4, "size": 4,
    }  # fmt: skip
    (row,) = steca.measure(options, 3)
    assert row["null_method"] == row["null_control"]
    assert all(0 <= row[key] <= 1 for key in ("method", "control", "extra.sft", "extra.start"))


def test_the_control_weighs_as_much_and_shows_no_mistake() -> None:
    player = new_pupil([SITE], seed=0, agent="text")
    shown = player.show(SITE, tasks_from(SITE, 8), expert_action, seed=0)
    found = method.Found()
    with player.acting(SITE) as rollout:
        collector: Any = RolloutCollector(rollout=rollout, seed_of_run=1, player=noisy(0.8))
        found.explore(collector, 1, shown, 2)
    steps = [step for step in found.steps.values() if "calibrated" in method.kinds_of(step, 0.95)]
    assert steps
    for step in steps:
        whole = method.imitate_step(step, "calibrated")
        other = steca.harmless(whole, step, steca.random.Random(0))
        assert other.trajectory is step.shown and other.weights is not None and whole.weights is not None
        weights = [float(sum(own.sum() for own in each.weights)) for each in (whole, other)]  # type: ignore[union-attr] # pyright: ignore[reportOptionalIterable]
        assert weights[0] == pytest.approx(weights[1]) and num_trained(other) > 0
        assert not other.weights[0].any(), "its first turn is context, as the mistake is"


def test_mistakes_are_forced_on_the_list() -> None:
    player = new_pupil([SITE], seed=0, model="micro?tokens=words", agent="text")
    forced = steca.mistaken(player, SITE, 6)
    assert all(len(t.turns) == 3 and t.turns[1].action.text.startswith("click best") for t in forced)
    assert all(t.turns[2].action.text == "back" for t in forced)
    assert 0 <= steca.recovery(player, SITE, forced, 0) <= 1


def test_errors_are_swapped_within_the_same_ones() -> None:
    kinds = ["city", "color", "city", "animal", "number", "color"]
    other = lam_simulator.swapped(kinds, 0)
    assert sorted(other) == sorted(kinds) and all(a != b for a, b in zip(kinds, other, strict=True))
    names = ["zor", "mip", "tak", "luv", "bex", "nid"]
    inside = lam_simulator.swapped(names, 0, within=kinds)
    assert inside == ["tak", "nid", "zor", "luv", "bex", "mip"], (
        "two of a kind change places, one alone stays"
    )
    assert lam_simulator.swapped([], 0) == []


def test_the_next_call_is_sampled_behind_an_error_of_another() -> None:
    world = f"{TOOLS}&vague=0.5"
    rows = lam_simulator.measure({"world": world, "seeds": 8, "episodes": 8, "updates": 1, "size": 4}, 3)
    assert len(rows) == 8
    wanted = {"method", "control", "null_method", "null_control", "extra.silent"}
    assert all(wanted == row.keys() and row["null_method"] == row["method"] for row in rows)
    player = new_pupil([world], seed=0, model="micro?tokens=words", agent="text")
    ahead = lam_simulator.forced(player, world, tasks_from(world, 24), 0)
    assert len(ahead) > 4
    for prefix in ahead:
        name, kind = lam_simulator.named_in(prefix)
        assert f"{name} takes a value" in str(prefix.turns[0].observation)
        assert lam_simulator.named_in(lam_simulator.told(prefix, "hob", "owl")) == ("hob", "owl")
        assert lam_simulator.text_of(lam_simulator.told(prefix, name, kind)) == lam_simulator.text_of(prefix)
    assert np.isfinite(lam_simulator.next_calls(player, world, ahead[:3], 0)).all()


def test_both_second_stages_begin_where_rl_ended() -> None:
    options = {
        "old": OLD, "new": NEW, "block": 0, "null_blocks": 1,
        "experts": 4, "few": 4, "start_updates": 4, "rl_updates": 2, "rl_tasks": 8, "rl_size": 8, "updates": 2,
        "held_out": 8, "size": 4,
    }  # fmt: skip
    (row,) = ire_vla.measure(options, 3)
    assert all(0 <= row[key] <= 1 for key in ("method", "control", "null_method", "null_control"))
    assert row["extra.found"] > 0 and row["extra.lift"] >= -row["extra.new"]


def test_the_head_alone_learns_while_it_explores() -> None:
    options = {"experts": 4, "few": 4, "start_updates": 4, "rl_updates": 2, "rl_tasks": 8, "rl_size": 8}
    player, shown = ire_vla.known(OLD, NEW, options, 1)
    still = ire_vla.trunk(player.model, 1)
    before = [p.detach().clone() for p in player.model.parameters()]
    resting = {id(p) for p in still}
    found = ire_vla.explored(player, NEW, options, 1)
    moved = [
        id(p) not in resting
        for p, old in zip(player.model.parameters(), before, strict=True)
        if not torch.equal(p, old)
    ]
    assert moved and all(moved) and len(shown) == 4
    assert found and all(e.trajectory.is_success for e in found)


def test_who_never_succeeds_has_nothing_to_rehearse() -> None:
    options = {"rl_updates": 1, "rl_tasks": 1, "rl_size": 2}
    player = new_pupil(["guess"], seed=0, model="micro?tokens=words")
    with pytest.raises(DataError, match="got no episode that succeeded"):
        ire_vla.explored(player, "guess?high=900&max_turns=1", options, 1)
