"""ETO, IPR, DMPO, M-DPO and NAT: which pairs they make, what they train with, and that they do."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.methods.test_training import Coin, interrupting, resume, rows, train, weights

from quintain.agents.labelled import SENTENCES
from quintain.data.pairs import Deviation, Estimate, best_and_worst, step_pairs
from quintain.data.samples import pair_samples
from quintain.data.seats import split_seats
from quintain.environments.catalog import find
from quintain.errors import ConfigError, DataError, UsageError
from quintain.learning.policies import Policy
from quintain.losses.preference import dpo
from quintain.methods.preference import dmpo, eto, ipr, m_dpo, mpo, nat, owl, pgpo, step_values
from quintain.methods.preference.exploring import Experts, Later, contrast_episodes
from quintain.runs.collector import Collector
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Group, Pair, StepResult, Stop, Task, Trajectory
from quintain.warm_start.demonstrations import load_data

Make = Callable[..., Trajectory]
WALK, COIN = f"{__file__}:Walk", f"{__file__}:Coin"


class Walk(Coin):
    """Say up twice; anything else goes down, from where nothing leads back."""

    max_turns = 3

    def reset(self, task: Task) -> str:
        self.height, self.is_lost = 0, False
        return f"Floor {task.seed % 7}."

    def step(self, action: Action) -> StepResult:
        self.is_lost |= action.text != "up"
        self.height += not self.is_lost
        done = self.height == 2
        return StepResult(
            observation="Lost." if self.is_lost else "Well.",
            reward=float(done),
            is_terminated=done,
            is_success=done,
        )

    def legal_actions(self) -> tuple[str, ...]:
        return ("up", "down")

    def expert_action(self) -> Action:
        return Action(text="up")

    def snapshot(self) -> tuple[int, bool]:
        return self.height, self.is_lost

    def restore(self, saved: tuple[int, bool]) -> None:
        self.height, self.is_lost = saved


class Keyed(Walk):
    """The same, and it says where one is."""

    def state_key(self) -> str:
        return f"{self.height} {self.is_lost}"


pytestmark = pytest.mark.usefixtures("quick")


FIELDS: dict[str, dict[str, Any]] = {
    "eto": {"tasks": 12, "num_epochs": 2, "num_minibatches": 2},
    "ipr": {"tasks": 6, "num_epochs": 1, "num_minibatches": 1, "margin": 0.2, "rollouts": 3},
    "m_dpo": {"environment": COIN, "tasks": 8, "group_size": 6, "num_minibatches": 1},
    "dmpo": {"tasks": 16, "batch_size": 8},
    "nat": {"demonstrations": 24, "expert_noise": 0.4, "batch_size": 8},
}
START = {"environment": WALK, "demonstrations": 2, "imitation_epochs": 1, "max_turn_tokens": 6}


@pytest.mark.parametrize("recipe", FIELDS)
def test_it_trains(recipe: str, tmp_path: Path) -> None:
    folder = train(recipe, tmp_path / recipe, **{**START, **FIELDS[recipe]})
    found = rows(folder)
    assert len(found) == 3 and weights(folder / "start") != weights(folder / "model")
    for row in found[1:]:
        if recipe == "nat":
            assert row["data/failures"] == row["data/kept"] > 0 and 0 < row["nat/successes"] < 1
        else:
            assert row["data/pairs"] > 0 and row["data/chosen_turns"] <= 3
    if recipe == "ipr":
        assert found[1]["ipr/deviations"] > 0 and found[1]["ipr/value_turns"] > 0
        assert found[1]["ipr/value_variance"] >= 0
        with Run.open(folder, writable=False) as run:
            by = {
                turn.completion.policy
                for t in run.trajectories(step=1, phase="step_values")
                for turn in t.turns
            }
            whole = [len(t.turns) for t in run.trajectories(step=1, phase="explored")]
        assert by >= {"reference"} and whole


PLANNED: dict[str, Any] = {
    "environment": WALK, "demonstrations": 12, "expert_noise": 0.3, "imitation_epochs": 4, "max_turn_tokens": 6,
    "num_minibatches": 1,
}  # fmt: skip


@pytest.mark.slow
def test_a_planner_learns_for_an_actor_that_rests(tmp_path: Path) -> None:
    folder = train(
        "mpo",
        tmp_path / "mpo",
        tasks=8,
        margin=0.2,
        executions=3,
        agent="plan?demonstrates=verbs&max_tokens=8",
        **PLANNED,
    )
    assert weights(folder / "start") != weights(folder / "model")
    row = rows(folder)[1]
    assert row["data/pairs"] > 0 and row["data/chosen_turns"] == row["data/rejected_turns"] == 1
    assert 0 < row["mpo/worth"] < 1 and row["mpo/spread"] > 0.2
    with Run.open(folder, writable=False) as run:
        own = list(run.trajectories(step=2, phase="train"))
        judged = list(run.trajectories(step=2, phase="plan_values"))
    assert len(own) == 8 * 5 and len(judged) == 2 * len(own), "an episode of its own and two beside it"
    assert rows(folder)[2]["mpo/value_turns"] == sum(len(t.turns) - 1 for t in judged)
    for trajectory in (*own, *judged):
        said = {(turn.seat, turn.completion.policy) for turn in trajectory.turns}
        assert said == {("agent/plan", "policy"), ("agent", "reference")}
        versions = {turn.completion.policy_version for turn in trajectory.turns[1:]}
        assert versions == {0}, "who acts is never trained"


@pytest.mark.slow
def test_plans_are_valued_and_preferred(tmp_path: Path) -> None:
    fields = {
        "agent": "plan?demonstrates=calls&max_tokens=8",
        "tasks": 8,
        "group_size": 2,
        "margin": 0.2,
        "rollouts": 3,
    }
    folder = train("pgpo", tmp_path / "pgpo", **PLANNED, **fields)
    assert weights(folder / "start") != weights(folder / "model")
    row = rows(folder)[1]
    assert row["data/pairs"] > 0 and row["pgpo/deviations"] >= row["data/pairs"]
    assert 0 < row["pgpo/calls"] < 1 and 0 <= row["pgpo/adherence"] <= 1
    with Run.open(folder, writable=False) as run:
        own = list(run.trajectories(step=1, phase="train"))
        valued = list(run.trajectories(step=1, phase="step_values"))
    assert len(own) == 16 and len(valued) % 3 == 0
    for trajectory in valued:
        assert trajectory.turns[0].is_internal
        assert {turn.completion.policy for turn in trajectory.turns[1:]} == {"reference"}


@pytest.mark.slow
def test_the_planner_of_a_workforce_learns_and_workers_rest(tmp_path: Path) -> None:
    agent = "plan?demonstrates=calls&replan_every=1&max_replans=1&max_tokens=8"
    folder = train("owl", tmp_path / "owl", agent=agent, tasks=8, **PLANNED)
    assert weights(folder / "start") != weights(folder / "model")
    row = rows(folder)[1]
    assert row["data/pairs"] > 0 and row["data/chosen_turns"] <= 2 and 1 < row["owl/plans"] <= 2
    assert 0 < row["owl/worker_errors"] < 1
    with Run.open(folder, writable=False) as run:
        own = list(run.trajectories(step=2, phase="train"))
    by = {(turn.seat, turn.completion.policy) for t in own for turn in t.turns}
    assert by == {("agent/plan", "policy"), ("agent", "worker")}
    assert max(sum(turn.is_internal for turn in t.turns) for t in own) == 2, "a plan, revised once at most"


@pytest.mark.slow
def test_the_planner_of_a_workforce_is_a_seat_beside_a_coordinator_and_workers(tmp_path: Path) -> None:
    seats = {"planner": "policy", "coordinator": "worker", "riser": "worker", "faller": "worker"}
    agent = "workforce?workers=riser:up;faller:down&max_replans=1&max_tokens=8"
    fields = PLANNED | {"environment": f"{__file__}:Keyed", "max_turn_tokens": 8}
    folder = train("owl", tmp_path / "owl", agent=agent, seats=seats, tasks=8, **fields)
    assert weights(folder / "start") != weights(folder / "model")
    row = rows(folder)[1]
    assert row["data/pairs"] > 0 and 1 <= row["owl/plans"] <= 2 and 0 < row["owl/worker_errors"] < 1
    with Run.open(folder, writable=False) as run:
        own = list(run.trajectories(step=2, phase="train"))
    by = {(turn.seat, turn.completion.policy) for t in own for turn in t.turns}
    assert {("planner", "policy"), ("coordinator", "worker")} <= by <= set(seats.items())
    with pytest.raises(ConfigError, match=r"seats: got .* of a workforce; let 'policy' play planner alone"):
        owl.Config(agent=agent, seats=seats | {"riser": "policy"}).check()


def test_what_workers_say_is_not_trained_and_not_paid(trajectory: Make) -> None:
    def said(value: float, index: int, error: bool = False) -> Trajectory:
        made = trajectory([((k,), (10 * index + k,)) for k in range(4)], value=value, index=index)
        seats = ["agent/plan", "agent"] * 2
        turns = tuple(
            replace(
                turn,
                seat=seat,
                is_valid=not (error and seat == "agent"),
                starts_segment=True,
                completion=replace(turn.completion, policy="policy" if seat != "agent" else "worker"),
            )
            for turn, seat in zip(made.turns, seats, strict=True)
        )
        return replace(made, turns=turns)

    groups = split_seats(grouped(said(1.0, 1, error=True), said(0.0, 2)))
    (pair,) = best_and_worst(owl.keep_groups_of(groups, "policy"))
    assert (pair.chosen.index, pair.rejected.index) == (1, 2), "errors of tools are nobody's reward"
    trained = [int(i) for s in pair_samples([pair]) for i in s.token_ids[s.loss_weight > 0]]
    assert trained == [10, 12, 20, 22]
    (workers,) = best_and_worst(owl.keep_groups_of(groups, "worker"))
    assert [t.seat for t in workers.chosen.turns] == ["agent", "agent"]
    assert owl.measure_plans(grouped(said(1.0, 1, error=True)), str) == {
        "owl/plans": 2.0,
        "owl/worker_errors": 1.0,
    }
    assert owl.measure_plans([], str) == {}


def test_plans_of_calls_and_who_adheres_to_them(trajectory: Make) -> None:
    def said(plan: str, *actions: str) -> Trajectory:
        made = trajectory([((k,), (k + 1,)) for k in range(1 + len(actions))], value=1.0)
        texts, seats = [plan, *actions], ["agent/plan", *["agent"] * len(actions)]
        turns = zip(made.turns, texts, seats, strict=True)
        return replace(made, turns=tuple(replace(t, action=Action(text=x), seat=s) for t, x, s in turns))

    found = pgpo.measure_adherence(
        grouped(said("1. go(home)\n2. wait()", "go home", "wait"), said("1. go home", "go home", "put", "up"))
    )
    assert found == {"pgpo/calls": 0.5, "pgpo/adherence": pytest.approx(3 / 5)}
    assert pgpo.measure_adherence([]) == {}
    with pytest.raises(ConfigError, match="give plan\\?demonstrates=calls"):
        pgpo.Config(agent="plan").check()


def test_equal_values_are_no_pair_even_without_a_margin(trajectory: Make) -> None:
    one = trajectory([((1,), (1,)), ((2,), (3,))], value=1.0, index=0)
    other = trajectory([((1,), (2,)), ((2,), (4,))], value=0.0, index=1)
    same = {"expert_value": Estimate((1.0, 0.0)), "agent_value": Estimate((0.0, 1.0))}
    found = step_pairs([Deviation(expert=one, agent=other, turn=0, **same)], margin=0.0)
    assert not found and found.refused == {"margin": 1}
    (pair,) = step_pairs(
        [Deviation(expert=one, agent=other, turn=0, **{**same, "agent_value": Estimate((0.0, 0.0))})],
        margin=0.0,
    )
    assert pair.chosen is one and len(pair.chosen.turns) == 2, "from the plan to the end"


def test_a_plan_is_worth_what_the_actor_makes_of_it(trajectory: Make) -> None:
    def of(value: float, index: int) -> Trajectory:
        return trajectory([((1,), (index,)), ((2,), (9,))], value=value, index=index)

    own = [of(1.0, 0), of(0.0, 1), of(0.0, 2)]
    after = [(1.0, 0.0), (1.0, 1.0), (0.0, 0.0)]
    collector: Any = Judging([grouped(*(of(v, k) for k, v in enumerate(values)))[0] for values in after])
    plans, _ = mpo.judge_plans(collector, 1, grouped(*own), 3)
    assert [value for _, value in plans[0]] == pytest.approx([2 / 3, 2 / 3, 0.0])
    assert all(len(plan.turns) == 1 for plan, _ in plans[0])
    assert collector.asked == {"size": 2, "phase": "plan_values"} and collector.prefixes == [1, 1, 1]
    once, num_turns = mpo.judge_plans(collector, 1, grouped(*own), 1)
    assert [value for _, value in once[0]] == [1.0, 0.0, 0.0] and num_turns == 0


class Judging:
    """Continues each prefix by a group that is given."""

    def __init__(self, after: list[Group]) -> None:
        self.after, self.asked, self.prefixes = after, dict[str, Any](), list[int]()

    def seed(self, *_: object) -> int:
        return 0

    def replay_episodes(self, trajectories: list[Trajectory]) -> list[Any]:
        return [SimpleNamespace(prefix=lambda turn: turn) for _ in trajectories]

    def continue_from(self, _: int, prefixes: list[int], *, size: int, seed: int, phase: str) -> list[Group]:
        assert seed == 0
        self.prefixes, self.asked = prefixes, {"size": size, "phase": phase}
        return self.after


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"plans": 1}, "a plan alone is not better"),
        ({"agent": "react"}, "nobody writes plans"),
        ({"agent": "plan?actor=scripted"}, "nobody writes plans"),
        ({"seats": {}}, "another policy act"),
        ({"seats": {"agent": "reference"}}, "let 'policy' write plans"),
    ],
)
def test_mpo_needs_two_roles(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        mpo.Config(**fields).check()


def test_m_kto_takes_the_same_episodes_one_by_one(tmp_path: Path) -> None:
    folder = train("m_dpo", tmp_path / "run", loss="kto", **{**START, **FIELDS["m_dpo"]})
    found = rows(folder)[1:]
    assert all(row["preference/kl"] >= 0 for row in found)
    assert found[0]["preference/kl"] == pytest.approx(0, abs=1e-6), "it begins at the reference"


@pytest.mark.slow
def test_the_reference_of_a_round_is_the_policy_that_began_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, float]] = []
    follow = Policy.follow

    def followed(policy: Policy, leader: Policy, *, polyak: float | None = None) -> None:
        follow(policy, leader, polyak=polyak)
        same = zip(policy.model.parameters(), leader.model.parameters(), strict=True)
        assert polyak == 0 or all(torch.equal(a, b) for a, b in same)
        seen.append((policy.name, 1.0 if polyak is None else polyak))

    monkeypatch.setattr(Policy, "follow", followed)
    train("eto", tmp_path / "eto", **{**START, **FIELDS["eto"]})
    assert seen == [("reference", 1.0)] * 3, "when it is made, and at the beginning of both rounds"
    seen.clear()
    train("m_dpo", tmp_path / "first", reference="first", **{**START, **FIELDS["m_dpo"]})
    assert seen == []


@pytest.mark.parametrize("recipe", ["eto", "ipr"])
@pytest.mark.slow
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


def of_task(make: Make, turns: int, value: float, stop: Stop = Stop.TERMINATED, index: int = 0) -> Trajectory:
    """An episode whose turns say `index` and their number."""
    made = make([((1,), (10 + index, place)) for place in range(turns)], value=value, index=index)
    return replace(made, stop=stop)


def grouped(*members: Trajectory) -> list[Group]:
    return [Group(task=members[0].task, trajectories=members)]


def test_failures_of_truncation_are_in_no_pair_and_long_ones_are_shortened(trajectory: Make) -> None:
    expert = of_task(trajectory, 2, 1.0, index=9)
    cut, late, early = (
        of_task(trajectory, turns, 0.0, stop, index)
        for index, (turns, stop) in enumerate(
            [(9, Stop.MAX_TOKENS), (9, Stop.MAX_TURNS), (3, Stop.TERMINATED)]
        )
    )
    experts = Experts({expert.task.id: expert})
    given = grouped(cut, late, early)
    whole = contrast_episodes(given, experts)
    assert [len(pair.rejected.turns) for pair in whole] == [9, 3] and whole.refused == {"cut": 1}
    short = contrast_episodes(given, experts, extra_turns=5)
    assert [len(pair.rejected.turns) for pair in short] == [7, 3]
    judged = contrast_episodes(given, experts, counts_turn_limit=False)
    assert [len(pair.rejected.turns) for pair in judged] == [3]
    better = of_task(trajectory, 9, 2.0, index=4)
    (pair,) = contrast_episodes(grouped(better), experts, extra_turns=0)
    assert pair.chosen is better and pair.rejected is expert, "an expert that lost stays whole"


def test_later_rounds_have_a_loss_of_their_own() -> None:
    later = Later(dpo(0.1), dpo(0.5))
    told: list[str] = []
    later.first = lambda *_: told.append("first")  # type: ignore[assignment,return-value]
    later.later = lambda *_: told.append("later")  # type: ignore[assignment,return-value]
    for _ in range(3):
        later.update([])
        later.loss(None, None)  # type: ignore[arg-type]
    assert told == ["first", "later", "later"]


def test_weights_of_what_is_imitated_beside() -> None:
    assert eto.method(eto.Config()).needs.renews_reference
    for likelihood in ("mean", "sum", "none"):
        made = ipr.method(ipr.Config(likelihood=likelihood))
        assert made.needs.reference_acts and not made.needs.renews_reference
    assert m_dpo.update_of(m_dpo.Config(loss="kto")).has_kl
    assert not m_dpo.update_of(m_dpo.Config(imitation_weight=0.5)).has_kl
    assert dmpo.method(dmpo.Config(imitation_weight=0.0)).draws_anew


def test_a_step_that_ends_the_episode_is_worth_its_outcome(trajectory: Make) -> None:
    one = of_task(trajectory, 2, 1.0)
    assert step_values.estimate(one, None) == Estimate((1.0,))
    assert step_values.parts_at(one, of_task(trajectory, 2, 0.0, index=1), 1)
    other = of_task(trajectory, 1, 0.0, index=1)
    assert not step_values.parts_at(one, one, 1) and not step_values.parts_at(one, other, 1)


def test_pairs_of_m_dpo_can_be_of_short_episodes_alone(trajectory: Make) -> None:
    members = [of_task(trajectory, turns, float(turns > 2), index=turns) for turns in (1, 2, 3, 4)]
    assert len(m_dpo.pair_episodes(grouped(*members), 4, None)) == 2
    (pair,) = m_dpo.pair_episodes(grouped(*members), 4, 3)
    assert isinstance(pair, Pair) and len(pair.chosen.turns) == 3


def test_no_pair_is_said_before_training(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the expert against the starting policy on 2 tasks: got 0 pairs"):
        train("dmpo", tmp_path / "run", tasks=2, **{**START, "environment": f"{__file__}:Sure"})


class Sure(Walk):
    """Everything leads there."""

    def step(self, action: Action) -> StepResult:
        return StepResult(observation="Well.", reward=1.0, is_terminated=True, is_success=True)


def test_labels_stand_in_the_prompt_and_are_not_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool, int]] = []
    shown = Collector.demonstrations

    def kept(collector: Collector, *teachers: Any, agent: str = "") -> list[Trajectory]:
        found = shown(collector, *teachers, agent=agent)
        seen.extend((collector.decode(t.turns[0].prompt_ids), t.is_success, t.seed) for t in found)
        return found

    monkeypatch.setattr(Collector, "demonstrations", kept)
    folder = train("nat", tmp_path / "run", **{**START, **FIELDS["nat"]}, steps=1)
    half = len(seen) // 2
    for (right, won, seed), (wrong, lost, other) in zip(seen[:half], seen[half:], strict=True):
        assert SENTENCES["right"] in right and SENTENCES["wrong"] in wrong
        assert right.replace(SENTENCES["right"], SENTENCES["wrong"]) == wrong
        assert (won, seed) == (lost, other), "the same episodes"
    with Run.open(folder, writable=False) as run:
        assert len(list(run.trajectories(step=0, phase="demonstrations"))) == half


def test_every_episode_is_shown_under_its_own_label(trajectory: Make) -> None:
    values = (1.0, 0.0, 0.25)
    shown = {
        label: [trajectory([((mark,), (7,))], value=value) for value in values]
        for label, mark in (("right", 1), ("wrong", 2), ("partly", 3))
    }
    marks = [t.turns[0].prompt_ids[0] for t in nat.label_episodes(shown)]
    assert marks == [1, 2, 3]
    del shown["partly"]
    assert [t.turns[0].prompt_ids[0] for t in nat.label_episodes(shown)] == [1, 2, 2]


def test_failures_up_to_a_number_for_each_success(trajectory: Make) -> None:
    from quintain.data.pipeline import as_example

    episodes = [trajectory([((1,), (7,))], value=v, index=k) for k, v in enumerate((0, 0, 1, 0, 0))]
    made = nat.pipeline(2.0).run([as_example(t) for t in episodes])
    assert [e.trajectory.index for e in made.examples] == [0, 1, 2]
    none = nat.pipeline(0.0).run([as_example(t) for t in episodes])
    assert [e.trajectory.index for e in none.examples] == [2]
    assert nat.shares(made.examples) == {"nat/successes": pytest.approx(1 / 3)}


def test_a_log_says_itself_how_its_episodes_turned_out(tmp_path: Path) -> None:
    asked = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 1?"}]
    rows = [
        {"messages": [*asked, {"role": "assistant", "content": said}], **outcome}
        for said, outcome in (
            ("2", {"is_success": True}),
            ("3", {"is_success": False}),
            ("2.", {"reward": 1.0}),
            ("4", {"reward": 0.0}),
            ("5", {"is_success": False, "reward": 0.5}),
        )
    ]
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    labelled = {"prompt": "1 + 1?", "completion": "3", "label": False}
    (tmp_path / "kto.jsonl").write_text(f"{json.dumps(labelled)}\n{json.dumps({**labelled, 'label': True})}")
    chat = Chat(train_tokenizer(["Add. 1 + 1? This attempt is to turn out right. 2 3 4 5"]))
    for levels, source, kinds in (
        (2, file, "right wrong right wrong wrong"),
        (3, file, "right wrong right wrong partly"),
        (2, tmp_path / "kto.jsonl", "wrong right"),
    ):
        config = nat.Config(demonstrations=str(source), environment="none", levels=levels)  # type: ignore[arg-type]
        found = load_data(source, chat.tokenizer, config, agent=None, max_length=999).data
        shown = [chat.text(t.turns[0].prompt_ids) for t in found if isinstance(t, Trajectory)]
        wanted = [
            sentence for kind in kinds.split() for label, sentence in SENTENCES.items() if label == kind
        ]
        assert [words in text for words, text in zip(wanted, shown, strict=True)] == [True] * len(shown)
        assert all(text.startswith(("<|system|>Add.<|user|>1 + 1?", "<|user|>1 + 1?")) for text in shown)
    with pytest.raises(DataError, match="got 1 successes alone; say in is_success, reward or label"):
        nat.both_kinds([t for t in found if isinstance(t, Trajectory) and t.is_success], "kto.jsonl")


def test_nat_needs_its_harness_and_episodes_of_a_teacher() -> None:
    with pytest.raises(ConfigError, match=r"agent: got auto, which says no label; put labelled"):
        nat.Config(agent="auto").check()
    nat.Config(demonstrations="x").check()
    with pytest.raises(
        ConfigError, match=r"expert_noise: got 0.5 with the conversations x, in which no expert acts"
    ):
        nat.Config(demonstrations="x", expert_noise=0.5).check()
    from quintain.agents.catalog import check

    with pytest.raises(UsageError):
        check("labelled?label=good+auto")
    assert find(WALK)().expert_action().text == "up"  # type: ignore[attr-defined]
