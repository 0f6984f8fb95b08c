"""Methods of the family train, and continue after an interruption as if there had been none."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.chat_model import KEY, ChatModel

from quintain.credit.whiten import whiten
from quintain.errors import ConfigError
from quintain.learning.saved import START
from quintain.methods.rl import pag
from quintain.store.run import Run
from quintain.types import Credit

GROUPS = {"tasks": 2, "group_size": 3}
METHODS: dict[str, dict[str, Any]] = {
    "reinforce_plus_plus": {"tasks": 4, "kl_coef": 0.1},
    "dapo": {**GROUPS, "max_draws": 2, "overlong_tokens": 8},
    "starpo": {**GROUPS},
    "gigpo": {**GROUPS, "kl_coef": 0.1},
    "loop": {**GROUPS, "ratio": "trajectory"},
    "spa_rl": {"episodes": 4},
    "ui_tars2": {"episodes": 4, "critic_steps": 1},
    "coso": {**GROUPS},
    "vine": {**GROUPS, "rollouts": 2},
    "swirl": {"tasks": 3, "group_size": 3},
    "toolrl": {"tasks": 3, "group_size": 3, "contexts": True},
    "ui_r1": {**GROUPS, "pool": 3, "chosen": 2},
}
Rows = Callable[[Path], list[dict[str, Any]]]


QUICK = frozenset({"dapo", "spa_rl", "ui_tars2", "vine"})
"""One that draws again, remembers, has a critic, continues episodes; of the others a step is quick."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_a_method_trains_and_resumes_bit_for_bit(
    name: str, runner: Any, rows: Rows, weights: Callable[[Path], str], interrupt: Callable[[int], None]
) -> None:
    whole = runner.train(name, **METHODS[name])
    curve = rows(whole)
    assert [row["step"] for row in curve] == [0, 1, 2]
    assert weights(whole / START) != weights(whole / "model")
    assert all("train/success" in row and "credit/groups" in row for row in curve[1:])
    interrupt(1)
    stopped = runner.train(name, **METHODS[name])
    assert not (stopped / "model").exists()
    runner.resume(stopped)
    assert rows(stopped) == curve
    assert weights(stopped / "model") == weights(whole / "model")


def test_a_judge_is_heard_from_its_tape_when_a_run_goes_on(
    runner: Any, rows: Rows, interrupt: Callable[[int], None], tmp_path: Path
) -> None:
    said = iter(range(10**6))
    model = ChatModel(lambda _: f"So so.\nSCORE: {next(said) % 10}")
    (tmp_path / "rubric.md").write_text("Is it good?")
    (tmp_path / "key").write_text(KEY)
    judge = (
        f"{model.url}?model=m&key_file={tmp_path}/key&rubric={tmp_path}/rubric.md&tape={tmp_path}/tape.jsonl"
    )
    settings = {"tasks": 2, "group_size": 3, "rewards": "environment, judge=0.5", "judge": judge}
    try:
        whole = runner.train("policy_gradient", **settings)
        curve = rows(whole)
        assert any(row["reward/judge"] > 0 for row in curve[1:])
        interrupt(1)
        stopped = runner.train("policy_gradient", **settings)
    finally:
        model.listener.close()
    runner.resume(stopped)  # nobody is there to be asked
    assert rows(stopped) == curve
    assert all(KEY.encode() not in each.read_bytes() for each in stopped.rglob("*") if each.is_file())


def test_dynamic_sampling_draws_other_tasks_until_enough_groups_differ(runner: Any, rows: Rows) -> None:
    folder = runner.train("dapo", **{**METHODS["dapo"], "steps": 1, "max_draws": 4})
    last = rows(folder)[-1]
    num = last["credit/groups"]
    equal = last["credit/zero_variance_groups"] * num
    assert num % 2 == 0
    assert num - equal >= 2 or num == 8


REST: dict[str, dict[str, Any]] = {
    "act_more": GROUPS,
    "cispo": GROUPS,
    "epo": {"episodes": 3},
    "dr_grpo": GROUPS,
    "glam": {"episodes": 3, "num_epochs": 2},
    "greedy": {"episodes": 3, "tries_all": True, "epsilon": 0.5},
    "grpo_tcr": {**GROUPS, "overlong_tokens": 8},
    "gspo": GROUPS,
    "lite_ppo": GROUPS,
    "metaspatial": {**GROUPS, "kl_coef": 0.1},
    "mt_grpo": GROUPS,
    "mucode": GROUPS,
    "openmanus": {**GROUPS, "max_draws": 2},
    "otc": {**GROUPS, "count": "turns"},
    "reinforce": {"episodes": 3},
    "rloo": GROUPS,
    "rlsp": {"episodes": 3},
    "scaling_inter": {**GROUPS, "turns": (1, 3), "stage_steps": 1},
    "toolrl": GROUPS,
    "twosome": {"episodes": 3, "num_epochs": 2},
}


@pytest.mark.parametrize("name", sorted({*REST, *METHODS} - QUICK))
def test_a_method_takes_a_step(name: str, runner: Any, rows: Rows) -> None:
    """Resuming is the loop's: what it must restore beyond the loop is in the methods above."""
    folder = runner.train(
        name, **{**METHODS.get(name, {}), **REST.get(name, {}), "steps": 1, "eval_episodes": 1}
    )
    last = rows(folder)[-1]
    assert last["step"] == 1
    assert last["credit/trajectories"] > 0 or name == "grpo_tcr"


def test_what_a_method_remembers_is_told_again(
    runner: Any, rows: Rows, interrupt: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rows(runner.train("spa_rl", **METHODS["spa_rl"]))
    interrupt(1)
    stopped = runner.train("spa_rl", **METHODS["spa_rl"])
    monkeypatch.setattr("quintain.methods.loops.recall.recall", lambda *_: iter(()))
    runner.resume(stopped)
    assert rows(stopped)[-1]["spa/error"] != whole[-1]["spa/error"]


def test_the_critic_learns_first_and_the_policy_waits(runner: Any, weights: Callable[[Path], str]) -> None:
    folder = runner.train("ui_tars2", episodes=3, critic_steps=2)
    assert weights(folder / START) == weights(folder / "model")


@pytest.mark.slow
def test_a_critic_does_not_believe_in_what_time_ran_out_on(runner: Any, rows: Rows) -> None:
    lottery = str(Path(__file__).with_name("corridor.py")) + ":Lottery"
    found = rows(
        runner.train(
            "ui_tars2",
            environment=lottery,
            episodes=64,
            critic_steps=10,
            steps=10,
            learning_rate=0.05,
            eval_every=20,
        )
    )[-3:]
    assert 0.1 < sum(row["train/success"] for row in found) / 3 < 0.35
    assert sum(row["value/mean"] for row in found) / 3 <= 0.5
    assert sum(row["value/explained_variance"] for row in found) / 3 > -0.5


@pytest.mark.slow
def test_epo_trains_a_strategist_for_a_frozen_actor(
    runner_in: Callable[[Path], Any], tmp_path: Path, rows: Rows
) -> None:
    given: dict[str, Any] = {
        "environment": "keydoor?rooms=2&distractors=1", "agent": "plan?actor=scripted", "demonstrations": 48,
        "expert_noise": 0.3, "imitation_epochs": 12, "imitation_lr": 1e-2, "episodes": 16, "steps": 2,
    }  # fmt: skip
    folder = runner_in(tmp_path).train("epo", **given)
    last = rows(folder)[-1]
    assert last["train/success"] > 0 and last["train/loss"] > 0
    with Run.open(folder) as run:
        episodes = list(run.trajectories(step=1, phase="train"))
    assert {turn.seat for t in episodes for turn in t.turns} == {"agent"}
    assert any(turn.action.text == "flag" and turn.is_valid for t in episodes for turn in t.turns)


@pytest.mark.slow
def test_answers_and_verdicts_have_statistics_of_their_own_in_training(
    runner_in: Callable[[Path], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: Rows,
    weights: Callable[[Path], str],
) -> None:
    seen: list[Credit] = []

    def watched(credit: Credit, **fields: Any) -> Credit:
        seen.append(whiten(credit, **fields))
        return seen[-1]

    monkeypatch.setattr(pag, "whiten", watched)
    own = runner_in(tmp_path)
    given: dict[str, Any] = {
        "environment": "sums?digits=1&bonus=0.5", "demonstrations": 64, "imitation_epochs": 8, "imitation_lr": 1e-2,
        "episodes": 24, "steps": 1,
    }  # fmt: skip
    apart = own.train("pag", **given)
    rehearsed, credit = seen
    assert not rehearsed.trajectories
    for role in ("policy", "verifier"):
        tokens = [
            float(x)
            for trajectory, arrays in zip(credit.trajectories, credit.advantages, strict=True)
            for turn, array in zip(trajectory.turns, arrays, strict=True)
            for x in array
            if pag.role(trajectory, turn) == role
        ]
        assert len(tokens) > 10
        assert (np.mean(tokens), np.std(tokens)) == (pytest.approx(0, abs=1e-5), pytest.approx(1, abs=1e-3))
    last = rows(apart)[-1]
    assert last["credit/trajectories"] == 24 and "pag/true_verdicts" in last
    together = own.train("pag", **given, by_role=False)
    assert weights(together / "model") != weights(apart / "model")


def test_a_mixed_run_weighs_kinds_of_tasks_and_normalises_each_apart(runner: Any, rows: Rows) -> None:
    world = runner.config("grpo").environment
    given: dict[str, Any] = {
        "environment": f"mix:{world}@2,{world.replace('Corridor', 'Long')}", "credit": "return", "tasks": 12,
        "group_size": 1, "steps": 1,
    }  # fmt: skip
    folder = runner.train("policy_gradient", normaliser="task", **given)
    last = rows(folder)[-1]
    shares = [value for name, value in last.items() if name.endswith("/gradient_share")]
    assert len(shares) == 2 and sum(shares) == pytest.approx(1) and min(shares) > 0
    assert sum(name.endswith("/reward_std") for name in last) == 2
    with Run.open(folder, writable=False) as run:
        kinds = Counter(t.task.environment for t in run.trajectories(step=1, phase="train"))
    assert sorted(kinds.values()) == [4, 8]


def test_many_environments_have_scales_of_their_own_and_are_drawn_by_progress(
    runner: Any, rows: Rows, weights: Callable[[Path], str]
) -> None:
    world = runner.config("grpo").environment
    given: dict[str, Any] = {
        "environment": f"mix:{world},{world.replace('Corridor', 'Long')}", "tasks": 4, "group_size": 4, "steps": 2,
        "eval_every": 2, "eval_episodes": 4,
    }  # fmt: skip
    folder = runner.train("agent_rl", **given)
    last = rows(folder)[-1]
    parts = [
        value for name, value in last.items() if name.startswith("eval/task/") and name.endswith("/success")
    ]
    assert len(parts) == 2 and last["eval/worst_success"] == min(parts)
    even = runner.train("agent_rl", **given, sampling="even")
    with Run.open(even, writable=False) as run:
        kinds = Counter(t.task.environment for t in run.trajectories(step=1, phase="train"))
    assert sorted(kinds.values()) == [8, 8]
    assert weights(even / "model") != weights(
        runner.train("agent_rl", **given, sampling="even", normalise_by="none") / "model"
    )


def test_any_credit_is_normalised_by_environment_and_what_selects_is_refused(
    runner: Any, weights: Callable[[Path], str]
) -> None:
    world = runner.config("grpo").environment
    given: dict[str, Any] = {
        "environment": f"mix:{world},{world.replace('Corridor', 'Long')}", "credit": "return", "tasks": 4,
        "group_size": 1, "steps": 1, "eval_every": 5,
    }  # fmt: skip
    by_loop = runner.train("policy_gradient", **given, normalise_by="environment")
    by_option = runner.train("policy_gradient", **given, normaliser="task")
    assert weights(by_loop / "model") == weights(by_option / "model")
    with pytest.raises(ConfigError, match="got environment with credit that selects what is imitated"):
        runner.train("policy_gradient", **{**given, "credit": "awr"}, normalise_by="environment")


def test_ui_r1_and_imitation_learn_from_the_same_few_tasks(runner: Any) -> None:
    def tasks_in(folder: Path, step: int, phase: str) -> set[str]:
        with Run.open(folder, writable=False) as run:
            return {trajectory.task.id for trajectory in run.trajectories(step=step, phase=phase)}

    learned = runner.train("ui_r1", **{**GROUPS, "tasks": 3, "pool": 3, "chosen": 3, "demonstrations": 5})
    imitated = runner.train("sft", demonstrations=5, examples=3, batch_size=3)
    assert tasks_in(learned, 0, "train") == set()
    assert len(tasks_in(learned, 1, "train")) == 3
    assert tasks_in(learned, 1, "train") == tasks_in(learned, 2, "train")
    with Run.open(imitated, writable=False) as run:
        first = [trajectory.task.id for trajectory in run.trajectories(step=0, phase="demonstrations")]
    assert len(first) == 5 and set(first[:3]) == tasks_in(learned, 1, "train")


def test_toolrl_acts_once_in_the_states_of_the_demonstrations(runner: Any) -> None:
    folder = runner.train("toolrl", **METHODS["toolrl"])
    with Run.open(folder, writable=False) as run:
        acted = list(run.trajectories(step=1, phase="branch"))
        assert not list(run.trajectories(step=1, phase="train"))
        shown = {t.task.id: t for t in run.trajectories(step=0, phase="demonstrations")}
    assert len(acted) == 9
    for trajectory in acted:
        task, number = trajectory.task.id.split("@")
        before, own = shown[task].turns[: int(number)], trajectory.turns[int(number) :]
        assert [turn.completion.token_ids for turn in before] == [
            turn.completion.token_ids for turn in trajectory.turns[: int(number)]
        ]
        assert len(own) == 1, "the teacher's turns are those of the demonstration, and one more was sampled"
    with pytest.raises(
        ConfigError, match="turns: got 2 with contexts, which are acted on once; leave turns at 1"
    ):
        runner.train("toolrl", contexts=True, turns=2)
