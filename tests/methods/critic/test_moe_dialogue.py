"""MoE dialogue management: who learns when and from what, and what no run can have."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quintain.credit.layout import Critic, TokenArrays
from quintain.errors import ConfigError
from quintain.methods.critic import moe_dialogue
from quintain.methods.loops.replay import watch
from quintain.types import Action, Completion, Credit, Group, Score, Stop, Task, Trajectory, Turn

Train = Callable[..., list[dict[str, Any]]]


def talk(seat: str, paid: list[float], policy: str = "experts", stop: Stop = Stop.TERMINATED) -> Trajectory:
    """Return the turns of one seat of a talk, each with two tokens."""
    turns = tuple(
        Turn(
            seat=seat, observation=(), prompt_ids=(1,), starts_segment=True, action=Action(), reward=reward,
            completion=Completion(token_ids=(5, 6), logprobs=(-1.0, -1.0), stop="stop", policy=policy),
            reward_terms={} if seat == "manager" else {"label": reward},
        )
        for reward in paid
    )  # fmt: skip
    return Trajectory(
        task=Task(id="t", environment="e", seed=0), turns=turns, stop=stop, seed=0, group=f"t/{seat}", index=0,
        outcome=Score(value=sum(paid), is_success=False),
    )  # fmt: skip


def groups(*talks: Trajectory) -> list[Group]:
    return [Group(task=t.task, trajectories=(t,)) for t in talks]


def test_a_candidate_is_judged_by_those_of_its_intent() -> None:
    credit = moe_dialogue.label_credit([talk("asks", [1, 0]), talk("decides", [0]), talk("asks", [1])])
    found = [[turn.tolist() for turn in own] for own in credit.advantages]
    third = pytest.approx([1 / 3, 1 / 3])
    assert found == [[third, pytest.approx([-2 / 3, -2 / 3])], [[0.0, 0.0]], [third]]


def test_the_target_ends_with_the_talk_and_goes_on_where_it_was_cut() -> None:
    manager, cut = talk("manager", [-0.5, 1.0], "policy"), talk("manager", [0.0], "policy", Stop.CUT)

    def values(asked: Sequence[Trajectory]) -> Critic:
        assert list(asked) == [manager, cut], "of the experts' talks nothing is asked"
        return Critic(
            values=[[np.array([0.2, 9.0]), np.array([0.4, 9.0])], [np.array([0.1, 9.0])]], final=[9.0, 0.6]
        )

    credit = moe_dialogue.choice_targets(groups(talk("asks", [1]), manager, cut), values, discount=0.5)
    assert credit.trajectories == (manager, cut) and credit.returns is not None
    found = [[turn.tolist() for turn in own] for own in credit.returns]
    assert found == [
        [pytest.approx([-0.3, -0.3]), pytest.approx([1.0, 1.0])], [pytest.approx([0.3, 0.3])]
    ]  # fmt: skip


def test_targets_take_what_came_of_it_by_lambda() -> None:
    manager = talk("manager", [-0.5, 1.0], "policy")
    values = Critic(values=[[np.array([0.2, 9.0]), np.array([0.4, 9.0])]], final=[9.0])

    def first(td_lambda: float) -> float:
        credit = moe_dialogue.choice_targets(
            groups(manager), lambda _: values, discount=0.5, td_lambda=td_lambda
        )
        assert credit.returns is not None
        return float(credit.returns[0][0][0])

    assert [first(share) for share in (0.0, 0.5, 1.0)] == pytest.approx([-0.3, -0.15, 0.0])


def test_a_choice_is_worth_its_state_and_what_the_policy_gives_it() -> None:
    said = moe_dialogue.choice_values(
        [[np.array([0.2, 9.0]), np.array([0.4])]],
        [[np.array([-1.0, -0.5]), np.array([-0.2])]],
        [[np.array([0.6, 0.4]), np.array([0.3])]],
        0.1,
    )
    assert said.before == [[0.2, 0.4]] and said.after == [[pytest.approx(0.15), pytest.approx(0.41)]]


def test_the_manager_is_measured_on_its_own_talks_alone() -> None:
    manager = talk("manager", [0.0, 1.0], "policy")

    class Asked:
        def token_values(self, talks: Sequence[Trajectory], *, by: str) -> Critic:
            assert list(talks) == [manager]
            v = {"policy": 0.25, "target": 0.5}[by]
            return Critic(values=[[np.array([v, 9.0]), np.array([2 * v, 9.0])]])

        def logprobs(self, talks: Sequence[Trajectory]) -> TokenArrays:
            return [[np.array([-0.5, -0.5]), np.array([0.0, 0.0])] for _ in talks]

        def entropies(self, talks: Sequence[Trajectory]) -> TokenArrays:
            return [[np.array([0.0, 0.0]), np.array([1.0, 1.0])] for _ in talks]

    ask: Any = Asked()
    critic = moe_dialogue.method(moe_dialogue.Config(discount=0.5, softness=0.1)).critic
    assert critic is not None
    # V .25, .5; Q .15, .7; G .5, 1; targets of Q .5 · 1 and 1
    assert watch(critic, [talk("asks", [1.0]), manager], ask) == {
        "critic/explained_variance": pytest.approx(1 - 0.125**2 / 0.25**2),
        "critic/overestimation": pytest.approx((-0.35 - 0.3) / 2),
        "critic/td_error": pytest.approx(((0.35**2 + 0.3**2) / 2) ** 0.5),
    }
    assert watch(critic, [talk("asks", [1.0])], ask) == {}, "experts have no critic"


def test_one_policy_plays_all_experts_where_nothing_is_said_of_them() -> None:
    assert moe_dialogue.Config(agent="experts?intents=asks,talks").seats == {
        "asks": "experts",
        "talks": "experts",
    }


def test_experts_learn_first_then_the_manager_and_then_no_more_talks_are_collected() -> None:
    class Tasks:
        def tasks(self, step: int, count: int) -> list[Task]:
            return [Task(id=f"{step}/{n}", environment="e", seed=n) for n in range(count)]

        def sample(self, step: int, tasks: list[Task], *, size: int) -> list[Group]:
            return groups(*(replace(talk("asks", [1.0]), task=task) for task in tasks * size))

    collector: Any = Tasks()
    made = moe_dialogue.method(
        moe_dialogue.Config(
            expert_steps=2, offline_after=3, tasks=4, num_updates=5, manager_updates=7, manager_lr_scale=2.0
        )
    )
    experts, manager = made.updates
    assert (experts.policy, manager.policy) == ("experts", "policy")
    steps = (1, 2, 3, 4)
    assert [experts.count(step) for step in steps] == [5, 5, 0, 0]
    assert [manager.count(step) for step in steps] == [0, 0, 7, 7]
    assert (experts.rate, manager.rate) == (1.0, 2.0)
    assert [len(made.collect(collector, step)) for step in steps] == [4, 4, 4, 0]
    own = [talk("asks", [1.0]), talk("decides", [0.0], "other"), talk("manager", [1.0], "policy")]
    asked: Any = None
    learned = experts.target(groups(*own), asked)
    assert isinstance(learned, Credit) and learned.trajectories == (own[0],), "of its own words alone"
    assert moe_dialogue.measure_intents(groups(*own, talk("asks", [0.0]))) == {
        "experts/asks": 0.5,
        "experts/decides": 0.0,
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"agent": "text"}, "agent: got 'text', in which no experts speak; give experts"),
        (
            {"agent": "experts?intents=asks,talks", "seats": {"asks": "experts"}},
            "another policy each of the experts asks, talks",
        ),
        ({"seats": {"asks": "experts"}}, "let 'policy' be the manager"),
        ({"seats": {**moe_dialogue.Config().seats, "manager": "experts"}}, "let 'policy' be the manager"),
        (
            {"expert_steps": 40},
            "offline_after: got 40 with expert_steps 40, after which experts talk no more",
        ),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        moe_dialogue.Config(**options).check()


@pytest.mark.slow
def test_a_run_trains_the_experts_and_then_the_manager(train: Train) -> None:
    rows = train(
        "moe_dialogue", environment="collab?slots=1&values=2&patience=2",
        agent="experts?intents=asks,decides&max_tokens=4",
        seats={"asks": "experts", "decides": "experts"}, steps=3, expert_steps=1, offline_after=2, tasks=2,
        batch_size=4, num_updates=1, demonstrations=16, imitation_epochs=6,
    )  # fmt: skip
    steps = [row for row in rows if "buffer/size" in row]
    assert ["experts/kl/reference" in row for row in steps] == [True, False, False]
    assert ["q/error" in row for row in steps] == [False, True, True]
    for row in steps:
        assert {"critic/explained_variance", "critic/td_error", "critic/overestimation"} <= row.keys()
        assert {"buffer/age", "buffer/effective_size"} <= row.keys()
    assert steps[1]["buffer/size"] == steps[2]["buffer/size"], "the data is all there is"
