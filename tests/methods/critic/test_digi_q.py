"""Digi-Q in its three stages: features of change, heads on features that rest, the best of N."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.methods.test_loops import episode
from tests.methods.test_training import SMALL, rows, weights

from quintain.credit.turn_td import TurnValues
from quintain.learning.learner import Forward
from quintain.learning.policies import Policies, Policy
from quintain.learning.train_config import MAIN
from quintain.methods.critic.digi_q import BEHAVIOR, Config, find_changes, method, upto
from quintain.methods.critic.turn_critics import CRITICS
from quintain.methods.loops import replay
from quintain.methods.loops.continuations import Continuation
from quintain.methods.loops.replay import CriticUpdate
from quintain.store.run import Run
from quintain.types import Batch, Group, Text, Turn

COIN = f"{Path(__file__).parents[1] / 'test_training.py'}:Coin"


pytestmark = pytest.mark.usefixtures("quick")


def config(**fields: Any) -> Config:
    small = {
        "tasks": 6, "batch_size": 3, "critic_updates": 2, "actor_updates": 1, "feature_steps": 1, "critic_steps": 1,
        "steps": 3, "candidates": 3, "threshold": 0.0, "eval_start": False,
    }  # fmt: skip
    values: dict[str, Any] = {**SMALL, "environment": COIN, **small, **fields}
    return Config(**values)


def test_features_rest_while_heads_learn_and_the_policy_learns_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies: dict[tuple[int, str], list[torch.Tensor]] = {}
    heads: dict[tuple[int, str], torch.Tensor] = {}
    make = replay.make_updates

    def watched(policies: Policies, buffer: Any, update: CriticUpdate, *rest: Any) -> Any:
        found = make(policies, buffer, update, *rest)
        step = rest[1].step
        for name in (*CRITICS, MAIN):
            bodies[step, name] = [p.detach().clone() for p in policies[name].model.parameters()]
        for name in CRITICS:
            head = policies[name].value_head
            assert head is not None
            heads[step, name] = head.linear.weight.detach().clone()
        return found

    monkeypatch.setattr(replay, "make_updates", watched)
    made = config()
    with Run.create(tmp_path / "run", recipe="digi_q", config=asdict(made)) as run:
        method(made).train(run, made)

    def is_same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
        return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))

    first_critic, second_critic = CRITICS
    assert not is_same(bodies[1, first_critic], bodies[1, MAIN]), "features were fine-tuned"
    for name in CRITICS:
        assert is_same(bodies[1, first_critic], bodies[2, name]), "features rest, and both critics have them"
        assert is_same(bodies[2, name], bodies[3, name])
        assert not torch.equal(heads[1, name], heads[2, name]), "heads learn"
    assert not torch.equal(heads[2, first_critic], heads[2, second_critic]), "each a head of its own"
    assert is_same(bodies[1, MAIN], bodies[2, MAIN]) and not is_same(bodies[2, MAIN], bodies[3, MAIN])
    first, second, third = rows(tmp_path / "run")[1:]
    assert 0 <= first["critic_1/changed"] <= 1 and "critic_1/value/cross_entropy" in first
    assert "critic_1/value/squared_error" in second and "digi_q/kept" in third
    assert [row["buffer/size"] for row in (first, second, third)] == [6, 6, 6]
    assert third["total/turns"] == first["total/turns"], "after the log the environment takes no step"
    assert weights(tmp_path / "run" / "model") != weights(tmp_path / "run" / "start")


@pytest.mark.slow
def test_heads_start_anew_on_what_is_standardized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The classifier's head does not go on to learn Q, and what V reads varies as much as what Q reads."""
    read: dict[str, list[torch.Tensor]] = {}
    said: dict[str, torch.Tensor] = {}
    make = replay.make_updates

    def watched(policies: Policies, buffer: Any, update: CriticUpdate, *rest: Any) -> Any:
        name = update.policy
        if rest[1].step == 2 and name in CRITICS:
            head, episodes = policies[name].value_head, buffer.episodes
            assert head is not None and head.inner is not None

            def hook(_: Any, seen: tuple[torch.Tensor]) -> None:
                read.setdefault(name, []).append(seen[0].detach())

            handle = head.inner.register_forward_pre_hook(hook)
            values = policies[name].turn_values(episodes)
            handle.remove()
            said[name] = torch.tensor([v for own in (*values.before, *values.after) for v in own])
            slow = policies[f"target_{name[-1]}"].turn_values(episodes)
            assert slow.before == values.before, "target networks start anew with them"
        return make(policies, buffer, update, *rest)

    monkeypatch.setattr(replay, "make_updates", watched)
    made = config(critic_lr_scale=30.0, critic_updates=8, polyak=0.001)
    with Run.create(tmp_path / "run", recipe="digi_q", config=asdict(made)) as run:
        method(made).train(run, made)
    for name in CRITICS:
        assert said[name].abs().max() < 0.1, "a new head knows nothing"
        seen = torch.cat(read[name])
        assert seen.mean(dim=0).abs().max() < 1e-3, "of both kinds of place together the mean is 0"


def test_stages_and_what_is_asked() -> None:
    made = method(config(feature_steps=2, critic_steps=3, steps=9))
    features, heads, others, actor = made.updates
    assert [features.count(step) for step in range(1, 8)] == [2, 2, 0, 0, 0, 0, 0]
    assert [heads.count(step) for step in range(1, 8)] == [0, 0, 2, 2, 2, 0, 0]
    assert [actor.count(step) for step in (5, 6, 9)] == [0, 1, 1]
    assert heads.update.head_layers == 0 and features.update.head_layers is None
    assert [heads.body, others.body] == ["", CRITICS[0]] and others.policy == CRITICS[1]
    assert made.needs.others[BEHAVIOR].acts and not made.needs.others[BEHAVIOR].is_trained
    assert made.needs.others[CRITICS[0]].head_width == 64
    assert method(config(log="other")).log == "other"


@pytest.mark.slow
def test_a_body_that_rests_is_read_once_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run with what it has read and run anew for every value: the same heads, the same policy."""
    made = config(critic_updates=3, actor_updates=2, steps=4)

    def trained(name: str) -> Path:
        with Run.create(tmp_path / name, recipe="digi_q", config=asdict(made)) as run:
            method(made).train(run, made)
        return tmp_path / name

    num_read = list[int]()
    features = Forward.features

    def counted(self: Forward, batch: Batch) -> torch.Tensor:
        num_read.append(len(batch.lengths))
        return features(self, batch)

    monkeypatch.setattr(Forward, "features", counted)
    once = trained("once")
    assert num_read, "streams were read"
    monkeypatch.setattr(Policy, "rest", lambda self, leader=None: None)
    anew = trained("anew")
    for one, other in zip(rows(once), rows(anew), strict=True):
        assert one.keys() == other.keys()
        for key in ("critic/td_error", "critic_2/value/squared_error", "digi_q/kept", "train/loss"):
            if one.get(key) is not None:
                assert one[key] == pytest.approx(other[key], abs=1e-4), key
    one, other = (load_file(folder / "model" / "model.safetensors") for folder in (once, anew))
    for key, weight in one.items():
        torch.testing.assert_close(weight, other[key], atol=1e-4, rtol=1e-3)


def test_bootstrapping_from_the_log_is_another_target() -> None:
    """The recorded turn's worth and that of the policy's own differ on an off-policy log."""
    whole = episode(1)

    class Asked:
        step, max_length = 1, 100

        def turn_values(self, episodes: Sequence[Any], *, by: str) -> TurnValues:
            """Q is .1 for the recorded turn, and .9 for another."""
            worth = [0.1 if t.turns[0].completion == whole.turns[0].completion else 0.9 for t in episodes]
            return TurnValues(before=[[0.0]] * len(episodes), after=[[q] for q in worth])

        def last_values(self, episodes: Sequence[Any], *, by: str) -> list[float]:
            return [own[-1] for own in self.turn_values(episodes, by=by).after]

        def resample_actions(self, episodes: Sequence[Any], *, size: int = 1, by: str = "") -> Any:
            said = replace(whole.turns[0].completion, token_ids=(9,))
            way = Continuation(
                episode=replace(whole, turns=(replace(whole.turns[0], completion=said),)), weight=1.0
            )
            return [[[way]] for _ in episodes]

    group = Group(task=whole.task, trajectories=(whole,))
    first: Mapping[str, float] = {
        name: float(made.updates[1].target([group], Asked()).samples[0].returns[1])  # type: ignore[arg-type, union-attr] # pyright: ignore
        for name in ("policy", "log")
        for made in [method(config(bootstrap=name))]
    }
    assert first == {"policy": pytest.approx(0.9), "log": pytest.approx(0.1)}, (
        "y_V, which stands before the turn"
    )


def test_what_changes_what_is_seen() -> None:
    whole = episode(1)

    def seen(text: str, *, is_valid: bool = True) -> Turn:
        return replace(whole.turns[0], observation=(Text(text=text),), is_valid=is_valid)

    turns = (seen("a"), seen("b"), seen("b", is_valid=False), seen("c"))
    assert find_changes(replace(whole, turns=turns, final_observation=(Text(text="c"),))) == [1, 0, 0, 0]
    assert upto(replace(whole, turns=turns), 1).turns == turns[:2]
