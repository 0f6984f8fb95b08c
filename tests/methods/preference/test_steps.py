"""Agent-R, RRO, E2CL and StepAgent: which steps they find, what they make of them, and that they train."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.methods.test_training import Coin, interrupting, resume, rows, train, weights

from quintain.agents.foresight import FINE
from quintain.data.pipeline import example_samples
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.errors import ConfigError, UsageError
from quintain.methods.method import Collector
from quintain.methods.preference import agent_r, e2cl, rro, step_agent
from quintain.methods.preference.agent_r import Revision, Revisions
from quintain.rollout.corrections import can_be_carried_out, states_in, try_proposals
from quintain.search.tree import upper_bound
from quintain.store.run import Run
from quintain.testing.pupil import Pupil, RolloutCollector, new_pupil, tasks_from
from quintain.types import Action, Group, StepResult, Task
from quintain.warm_start.start import expert_action

GARDEN = f"{__file__}:Garden"


BLOCKS = "plan?blocks=3&irreversible=true"


pytestmark = pytest.mark.usefixtures("quick")


FIELDS: dict[str, dict[str, Any]] = {
    "step_agent": {
        "demonstrations": 24,
        "imitation_epochs": 6,
        "expert_noise": 0.4,
        "tasks": 12,
        "num_epochs": 1,
        "num_minibatches": 1,
    },
    "e2cl": {
        "agent": "foresight+text",
        "demonstrations": 6,
        "imitation_epochs": 4,
        "tasks": 4,
        "updates": 2,
        "batch_size": 4,
        "steps": 2,
    },
    "rro": {
        "demonstrations": 24,
        "imitation_epochs": 3,
        "expert_noise": 0.4,
        "tasks": 3,
        "rollouts": 3,
        "cap": 3,
    },
    "agent_r": {
        "demonstrations": 24,
        "imitation_epochs": 12,
        "expert_noise": 0.4,
        "tasks": 6,
        "branches": 3,
        "expansions": 2,
    },
}


START = {"environment": GARDEN, "max_turn_tokens": 4}
HOUSE = "house?kind=put&errors=typed&things=2"


class Garden(Coin):
    """Go on twice; who steps aside has to come back first."""

    max_turns = 5

    def __init__(self, *, pays: float = 1.0) -> None:
        self.pays = pays

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
            observation=seen, reward=self.pays * done, is_terminated=done, is_success=done, is_valid=is_valid
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
@pytest.mark.slow
def test_it_trains_and_a_broken_off_run_resumes_bit_for_bit(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {**START, **FIELDS[recipe]}
    folder, stopped = train(recipe, tmp_path / recipe, **fields), tmp_path / "stopped"
    learns(recipe, folder)
    with monkeypatch.context() as patch:
        interrupting(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, stopped, **fields)
    resume(stopped)
    assert weights(stopped / "model") == weights(folder / "model") and rows(stopped) == rows(folder)


def learns(recipe: str, folder: Path) -> None:
    """See that the run in `folder` learned from what its method is about."""
    found = rows(folder)
    assert len(found) == 3 and weights(folder / "start") != weights(folder / "model")
    if recipe == "agent_r":
        first = found[1]
        assert first["agent_r/failures"] >= first["agent_r/revised"] > 0
        assert first["data/revised"] == first["data/good"] + first["agent_r/revised"] == first["data/kept"]
        with Run.open(folder, writable=False) as run:
            made = list(run.trajectories(step=1, phase="revised"))
        assert len(made) == first["agent_r/revised"] + first["agent_r/shows_other"]
    if recipe == "e2cl":
        assert found[1]["data/lessons"] == found[1]["e2cl/lessons"] >= found[1]["e2cl/errors"] > 0
    if recipe == "step_agent":
        assert found[1]["data/pairs"] > 0 and 0 < found[1]["step_agent/other"] < 1
    if recipe == "rro":
        first = found[1]
        assert first["data/pairs"] > 0 and 1 <= first["rro/drawn"] <= 3 <= first["rro/states"]
        with Run.open(folder, writable=False) as run:
            phases = [list(run.trajectories(step=1, phase=phase)) for phase in ("train", "drawn", "valued")]
        assert sum(map(len, phases)) == first["rro/rollouts"] and len(phases[0]) == 9
        assert len(phases[1]) == round(first["rro/drawn"] * first["rro/states"])


def tree_of(world: str, rate: float, tasks: int, tries: int) -> tuple[Pupil, list[Group]]:
    """Return a player without knowledge, and episodes of an expert who errs, a group for each task."""
    pupil = new_pupil([world], seed=0, model="micro?tokens=words", agent="text")
    drawn = tasks_from(world, tasks)
    shown = [pupil.show(world, drawn, noisy(rate), seed=seed) for seed in range(tries)]
    return pupil, [Group(task=own[0].task, trajectories=tuple(own)) for own in zip(*shown, strict=True)]


def put_right(world: str, *, undo_turns: int, tasks: int, rate: float) -> tuple[Revisions, list[Revision]]:
    """Return what became of an erring expert's failures, and the ways that were tried."""
    config = agent_r.Config(environment=world, undo_turns=undo_turns, drop=0.1)
    revisions = Revisions(config, 0.5)
    pupil, groups = tree_of(world, rate, tasks, 8)
    with pupil.acting(world) as rollout:
        collector = cast(Collector, RolloutCollector(rollout=rollout, seed_of_run=0))
        revisions.put_right(collector, 1, groups)
    tried = revisions._find_revisions(groups)  # pyright: ignore[reportPrivateUsage]
    return revisions, tried


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_rounds_ask_for_better_and_better_episodes() -> None:
    assert agent_r.Config().good == (0.5, 0.7, 0.9)
    made = agent_r.method(agent_r.Config(undo_turns=0))
    assert not made.needs.snapshots and agent_r.method(agent_r.Config()).needs.legal_actions


def test_as_published_nothing_is_imitated_beside() -> None:
    made = [rro.method(rro.Config(imitation_weight=weight)) for weight in (0.0, 1.0)]
    assert [each.needs.reference for each in made] == [True, True]
    assert made[0].update.loss is not made[1].update.loss


def test_by_default_the_expert_goes_on_after_a_correction() -> None:
    (shown,) = new_pupil([HOUSE], seed=0, model="micro?tokens=words", agent="foresight+text").show(
        HOUSE, tasks_from(HOUSE, 1), expert_action, seed=0
    )
    (lesson,) = e2cl.lessons_of(find(HOUSE), shown, {0: Action(text="fly")})
    usual = e2cl.go_on(find(HOUSE), lesson, e2cl.Config().onward)
    rest = [x.action.text for x in shown.turns if not x.is_internal]
    assert [a.text for a in usual.then] == rest[1 : e2cl.Config().onward + 1] and usual.then


@pytest.mark.parametrize("onward", [0, 2])
def test_lessons_are_written_and_only_what_came_of_a_draft_and_what_followed_counts(onward: int) -> None:
    world = HOUSE
    pupil = new_pupil([world], seed=0, model="micro?tokens=words", agent="foresight+text", texts=["fly fine"])
    shown = pupil.show(world, tasks_from(world, 3), expert_action, seed=0)
    assert [turn.seat for turn in shown[0].turns[:2]] == ["agent/draft", "agent"]
    explored, fly = e2cl.Explored(e2cl.Config(environment=world)), Action(text="fly")
    places = [(t, turn) for t in shown for turn in e2cl.drafts_of(t)]
    explored.lessons = [
        e2cl.go_on(find(world), lesson, onward)
        for t in shown
        for lesson in e2cl.lessons_of(find(world), t, dict.fromkeys(e2cl.drafts_of(t), fly))
    ]
    with pupil.acting(world) as rollout:
        collector = cast(Collector, RolloutCollector(rollout=rollout, seed_of_run=0))
        found = explored._write_lessons(collector, 1)  # pyright: ignore[reportPrivateUsage]
    assert len(found) == len(explored.lessons) == len(places)
    for example in found:
        whole = example.trajectory
        turn = len(whole.turns) - sum(float(own.sum()) > 0 for own in example.weights or ()) - 1
        (t,) = [t for t in shown if t.task == whole.task]
        then = [x.action.text for x in t.turns[turn:] if not x.is_internal][: onward + 1]
        said = [pupil.decode(each.completion.token_ids[:-1]) for each in whole.turns[turn:]]
        assert said == ["fly", "no such action", then[0], *(w for a in then[1:] for w in (a, FINE))]
        assert example.weights is not None and whole.turns[-1].is_valid
        taught = [float(own.sum()) > 0 for own in example.weights]
        assert taught == [False] * (turn + 1) + [True] * (len(whole.turns) - turn - 1)
    with pytest.raises(UsageError, match="actions to try in garden: got an environment without"):
        try_proposals(Bare, shown[0], {})


class Bare(Coin):
    """Without snapshots."""

    name = "garden"


def test_e2cl_needs_its_harness_and_an_expert() -> None:
    with pytest.raises(ConfigError, match=r"agent: got text, which foretells nothing; put foresight\+"):
        e2cl.Config(agent="text").check()
    with pytest.raises(ConfigError, match="demonstrations: got None, and the expert's episodes"):
        e2cl.Config(demonstrations=None).check()
    e2cl.Config(agent="foresight?max_tokens=8+text", demonstrations="shown.jsonl").check()


@pytest.mark.slow
def test_the_inverse_variant_pays_by_the_discriminator_alone(tmp_path: Path) -> None:
    fields = {**START, **FIELDS["step_agent"], "reward": "inverse"}
    one = train("step_agent", tmp_path / "one", **fields)
    other = train("step_agent", tmp_path / "other", **{**fields, "environment": f"{GARDEN}?pays=0.25"})
    found = [rows(folder)[1] for folder in (one, other)]
    assert 0 < found[0]["step_agent/expert_like"] < 0.5 and found[0]["step_agent/other"] > 0
    assert found[0]["train/reward"] != found[1]["train/reward"], "what the environment pays is another thing"
    assert weights(one / "model") == weights(other / "model") != weights(one / "start")


def test_a_reward_is_the_logit_of_the_discriminator() -> None:
    assert step_agent.probability(1.3862944) == pytest.approx(0.8)
    experts = np.array([[1.0, 0.0]] * 4)
    own = np.array([[0.0, 1.0]] * 4)
    weights_of = step_agent.fit_discriminator(experts, own, ridge=0.1)
    assert weights_of[0] > 0 > weights_of[1] and weights_of[0] == pytest.approx(-weights_of[1])
    assert step_agent.fit_discriminator(own, own) == pytest.approx([0.0, 0.0]), (
        "D is .5 where nothing is to tell"
    )
    assert step_agent.features("A door.", "open").sum() == 4.0
