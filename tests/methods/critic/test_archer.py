"""ArCHer trains in all its variants, its critics first, and the traps of its card."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.methods.test_training import SMALL, rows, weights

from quintain.errors import ConfigError
from quintain.learning import policies as module
from quintain.learning.train_config import MAIN
from quintain.methods.critic.archer import Config, method
from quintain.methods.critic.turn_critics import CRITICS, TARGETS
from quintain.methods.loops.replay import Replay
from quintain.store.run import Run

COIN = f"{Path(__file__).parents[1] / 'test_training.py'}:Coin"


pytestmark = pytest.mark.usefixtures("quick")


def config(**fields: Any) -> Config:
    small = {
        "tasks": 4,
        "batch_size": 3,
        "critic_updates": 2,
        "critic_first": 1,
        "critic_explains": 0.0,
        "eval_start": False,
    }
    values: dict[str, Any] = {**SMALL, **small, "environment": COIN, **fields}
    return Config(**values)


def train(folder: Path, made: Config) -> Path:
    with Run.create(folder, recipe="archer", config=asdict(made)) as run:
        method(made).train(run, made)
    return folder


@pytest.mark.parametrize(
    "fields",
    [
        {},
        pytest.param({"actor": "exact"}, marks=pytest.mark.slow),
        pytest.param({"critics": "iql"}, marks=pytest.mark.slow),
    ],
)
def test_every_variant_trains_and_its_critics_come_first(tmp_path: Path, fields: dict[str, Any]) -> None:
    folder = train(tmp_path / "run", config(**fields))
    first, second = rows(folder)[1:]
    assert "train/loss" not in first and first["critic_1/value/squared_error"] > 0
    assert {"train/loss", "archer/advantage_std", "critic/td_error", "buffer/version_lag"} <= second.keys()
    assert weights(folder / "model") != weights(folder / "start")
    assert second["train/lr_scale"] == pytest.approx(0.1), (
        "the policy's rate rises from where it begins to learn"
    )
    if fields.get("critics") != "iql":
        assert second["policy/ratio_mean"] == pytest.approx(1, abs=1e-4), "actions are the policy's own"
    assert second["critic_1/value/squared_error"] != second["critic_2/value/squared_error"], (
        "two different critics"
    )


@pytest.mark.parametrize("is_resumed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_rate_rises_step_by_step_in_a_run_that_is_resumed_too(tmp_path: Path, is_resumed: bool) -> None:
    folder, made = tmp_path / "run", config(steps=3)
    if is_resumed:
        train(folder, config(steps=2))
        with Run.open(folder) as run:
            method(made).train(run, made)
    else:
        train(folder, made)
    risen = [row.get("train/lr_scale") for row in rows(folder)[1:]]
    assert risen == [None, pytest.approx(0.1), pytest.approx(0.2)]


def test_targets_are_detached_and_move_a_tenth_of_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[tuple[torch.Tensor, ...]] = []
    follow = module.Policy.follow

    def watched(own: module.Policy, leader: module.Policy, *, polyak: float | None = None) -> None:
        assert own.name in TARGETS and leader.name == CRITICS[TARGETS.index(own.name)]
        assert own.value_head is not None and leader.value_head is not None
        before = own.value_head.linear.weight.detach().clone()
        follow(own, leader, polyak=polyak)
        assert not any(p.requires_grad for p in own.model.parameters()) and own.learner is None
        if polyak is None:
            moved.append(
                (
                    before,
                    leader.value_head.linear.weight.detach().clone(),
                    own.value_head.linear.weight.detach().clone(),
                )
            )

    monkeypatch.setattr(module.Policy, "follow", watched)
    train(tmp_path / "run", config(steps=1))
    assert len(moved) == 4, "after every update of each critic"
    for before, leader, after in moved:
        torch.testing.assert_close(after, before + 0.1 * (leader - before))


@pytest.mark.slow
def test_a_step_does_not_depend_on_how_its_batch_is_cut(tmp_path: Path) -> None:
    """The official code sums 32 batches before it clips at .01, so that what is accumulated sets the step."""
    whole = rows(train(tmp_path / "whole", config(max_grad_norm=0.01)))
    cut = rows(train(tmp_path / "cut", config(max_grad_norm=0.01, tokens_per_microbatch=400)))
    for name in ("train/loss", "train/grad_norm", "critic_1/value/squared_error", "critic/td_error"):
        assert cut[-1][name] == pytest.approx(whole[-1][name], rel=1e-3, abs=1e-6)


def test_each_policy_clips_its_own_gradient_and_actions_are_fresh() -> None:
    made = method(config())
    assert isinstance(made, Replay)
    assert [update.policy for update in made.updates] == [*CRITICS, MAIN]
    critic, _, actor = made.updates
    assert critic.rate == 10 and [actor.count(step) for step in (1, 2)] == [0, 2]
    assert actor.update.is_on_policy and (actor.update.aggregation, actor.update.constant) == (
        "constant",
        1.0,
    )
    assert not critic.update.is_on_policy and made.needs.others[TARGETS[1]].copies == CRITICS[1]
    logged = method(config(critics="iql")).updates[-1].update
    assert not logged.is_on_policy, "only weighted imitation may learn from stored actions"


def test_the_policy_waits_for_critics_that_foretell_new_episodes() -> None:
    made = method(Config(critic_first=1))
    assert isinstance(made, Replay)
    actor = made.updates[-1]
    counts: list[int] = []
    for step, explained in enumerate([0.5, 0.2, 0.1, -0.3, None, 0.1, 0.4, 0.9], 1):
        counts.append(actor.count(step))
        made.state.observe({} if explained is None else {"critic/explained_variance": explained})
    assert [*counts, actor.count(9)] == [0, 0, 0, 2, 0, 0, 0, 0, 2], (
        "three steps in a row, the first alone are none"
    )
    recorded = method(Config(critic_first=1, critics="iql"))
    assert isinstance(recorded, Replay)
    assert recorded.updates[-1].count(2) == 2, (
        "imitation of recorded turns harms nothing while critics know nothing"
    )


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ConfigError, match="actor: got exact with critics=iql"):
        config(critics="iql", actor="exact").check()


def test_a_critic_of_exact_ways_needs_legal_actions(tmp_path: Path) -> None:
    made = replace(config(actor="exact"), environment="guess")
    with pytest.raises(ConfigError, match="one that does not list its legal actions"):
        train(tmp_path / "run", made)
