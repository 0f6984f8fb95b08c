"""RLAdapter: which messages are imitated, who rests, and what no run can have."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.build import make_episode, make_turn

from quintain.data.pipeline import Pipeline, weigh_stage
from quintain.errors import ConfigError
from quintain.learning.policies import Policies, Policy, build_policies
from quintain.methods.critic import rladapter
from quintain.types import Group, Score, Trajectory

Train = Callable[..., list[dict[str, Any]]]


def episode(seat: str, paid: list[float], index: int = 0) -> Trajectory:
    turns = tuple(
        make_turn((5,), logprob=-1.0, seat=seat, starts_segment=True, reward=reward)
        for reward in paid
    )  # fmt: skip
    return make_episode(*turns, outcome=Score(value=sum(paid), is_success=False), group="t", index=index)


def test_messages_whose_own_interval_came_to_what_was_advised_are_imitated() -> None:
    played = [episode("agent", [1.0, 1.0]), episode("adapter", [0.0, 1.0], 1), episode("adapter", [0.0], 2)]
    made = rladapter.messages()([Group(task=played[0].task, trajectories=tuple(played))])
    (example,) = made.examples
    assert example.trajectory.index == 1 and example.weights is not None
    assert [weights.tolist() for weights in example.weights] == [[0.0], [1.0]]


def test_an_adapter_that_plays_alone_is_paid_its_own_share() -> None:
    alone = episode("agent", [0.3, 0.3], 1)
    paid = (0.0, 1.0)
    alone = replace(
        alone,
        turns=tuple(replace(t, rewards={"adapter": p}) for t, p in zip(alone.turns, paid, strict=True)),
    )
    group = Group(task=alone.task, trajectories=(episode("agent", [1.0]), alone))
    (example,) = rladapter.messages()([group]).examples
    assert example.trajectory.index == 1 and example.weights is not None
    assert [weights.tolist() for weights in example.weights] == [[0.0], [1.0]]
    assert rladapter.measure_advice([group])["rladapter/queries"] == 1.0


def test_what_is_measured() -> None:
    asked = episode("adapter", [0.0])
    acted = replace(episode("agent", [1.0]).turns[0], reward_terms={"reached": 1.0, "understood": 0.5})
    played = replace(asked, turns=(*asked.turns, acted))
    assert rladapter.measure_advice([Group(task=asked.task, trajectories=(played,))]) == {
        "rladapter/queries": 1.0, "rladapter/reached": 1.0, "rladapter/understood": 0.5,
    }  # fmt: skip
    assert rladapter.measure_advice([]) == {"rladapter/queries": 0.0}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"agent": "text"}, "agent: got 'text', in which no adapter writes; give advised"),
        ({"agent": "advised?adapter=fixed"}, "in which no adapter writes"),
        ({"seats": {}}, "a policy that rests each of agent"),
        ({"seats": {"agent": "helper"}}, "a policy that rests each of agent"),
        ({"agent": "advised?adviser=policy"}, "a policy that rests each of agent, adviser"),
        (
            {"agent": "advised?actor=scripted"},
            "the adapter plays alone and has the seat 'agent'; give seats.agent = 'policy'",
        ),
        ({"seats": {"agent": "reference", "adapter": "reference"}}, "let 'policy' be the adapter"),
    ],
)
def test_who_must_rest_and_who_must_learn(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        rladapter.Config(**options).check()


def test_a_script_or_any_policy_that_rests_may_act() -> None:
    rladapter.Config(agent="advised?actor=scripted", seats={}).check()
    both = {"agent": "reference", "adviser": "reference"}
    rladapter.Config(agent="advised?adviser=policy", seats=both).check()


def digest(policy: Policy) -> str:
    """Return a digest of all weights of `policy`."""
    found = hashlib.sha256()
    for name, weights in sorted(policy.model.state_dict().items()):
        found.update(name.encode() + weights.numpy().tobytes())
    return found.hexdigest()


def test_a_run_trains_the_adapter_and_the_adviser_and_agent_rest(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Policies, dict[str, str]]] = []

    def build(*given: Any, **named: Any) -> Policies:
        made = build_policies(*given, **named)
        seen.append((made, {name: digest(policy) for name, policy in made.items()}))
        return made

    def pay_all(_: Trajectory) -> list[float]:
        return [1.0] * len(_.turns)

    monkeypatch.setattr("quintain.runs.context.build_policies", build)
    monkeypatch.setattr(
        rladapter, "messages", lambda: Pipeline(weigh_stage("all", "is not paid", pay_all))
    )  # so that a model which knows nothing has something to learn from
    rows = train(
        "rladapter", environment="craft?recipes=drawn&depth=1&places=2&reward=dense",
        agent="advised?adviser=policy&every=2&queries=2&max_tokens=6",
        seats={"agent": "reference", "adviser": "reference"},
        steps=1, tasks=2, group_size=1, num_epochs=1, num_minibatches=1, learning_rate=1e-2,
        demonstrations=4, imitation_epochs=1,
    )  # fmt: skip
    assert any(0 < row.get("rladapter/queries", 0) <= 2 for row in rows)
    ((policies, before),) = seen
    after = {name: digest(policy) for name, policy in policies.items()}
    assert after["reference"] == before["reference"] and after["policy"] != before["policy"]
