"""Any idea of credit with any policy loss, and what contradicts itself is refused."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from quintain.methods.loops.method import Assign, Memories
from quintain.methods.rl.parts.anchoring import EPISODE, Anchor
from quintain.methods.rl.parts.critic import critic
from quintain.methods.rl.parts.ideas import IDEAS
from quintain.methods.rl.parts.normalisers import NORMALISERS, by_environment, by_seat, normalised
from quintain.methods.rl.parts.paid import TERMS, needs_states, terms
from quintain.methods.rl.parts.surrogates import LOSSES
from torch import Tensor

from quintain.credit.outcome import outcome_return
from quintain.data.samples import samples_from
from quintain.errors import ConfigError, UsageError
from quintain.losses.value import value
from quintain.methods.rl import policy_gradient
from quintain.rewards.exploration import Visits
from quintain.rewards.terms import apply
from quintain.rollout.collect import Limits
from quintain.store.run import Run
from quintain.training.context import Work, opened
from quintain.types import Action, Completion, Credit, Group, Loss, Score, Stop, Task, Trajectory, Turn

Rows = Callable[[Path], list[dict[str, Any]]]
PAIR: dict[str, Any] = {"tasks": 2, "group_size": 3}


@pytest.fixture(scope="module")
def played(runner: Any) -> Iterator[tuple[Work, list[Group]]]:
    """A policy that has everything a method may ask for, and episodes that differ in outcome."""
    config = runner.config("policy_gradient", learning_rate=1e-3)
    limits = Limits(has_state_keys=True)
    folder = runner.folder / "played"
    with (
        Run.create(folder, recipe="policy_gradient", config=asdict(config)) as run,
        opened(config, run, has_critic=True, has_reference=True, limits=limits) as work,
    ):
        groups = work.groups(1, tasks=3, size=4)
        assert len({t.outcome.value for g in groups for t in g.scored if isinstance(t.outcome, Score)}) > 1
        yield work, groups


def gradient(work: Work, credit: Credit, loss: Loss) -> Tensor:
    """The gradient of `loss` on the model, of a step on `credit`."""
    parameters = list(work.model.parameters())
    for parameter in parameters:
        parameter.grad = None
    for batch in work.batches(samples_from(credit), aggregation="sequence_mean"):
        loss(work.learner.forward(work.learner.with_reference(batch)), batch).loss.backward()
    return torch.cat([p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in parameters])


@pytest.mark.parametrize("name", IDEAS)
def test_at_the_sampler_every_loss_has_the_gradient_of_reinforce(
    name: str, played: tuple[Work, list[Group]]
) -> None:
    """The whole product of credit and losses: neither knows of the other."""
    work, groups = played
    config = policy_gradient.Config(credit=name)
    method = policy_gradient.method(config)
    if method.memory is not None:
        method.memory.update(groups)
    credit = method.credit(work, groups)
    assert len(credit.trajectories) == (3 if name == "best_of" else 12)
    wanted = gradient(work, credit, LOSSES["reinforce"]())
    assert wanted.norm() > 1e-3
    for loss in LOSSES.values():
        assert torch.allclose(gradient(work, credit, loss()), wanted, atol=1e-5 * float(wanted.norm()) + 1e-7)


def test_credit_is_the_same_whatever_the_loss(played: tuple[Work, list[Group]]) -> None:
    work, groups = played
    found = [
        policy_gradient.method(policy_gradient.Config(loss=name, updates=2 - (name == "reinforce"))).credit
        for name in LOSSES
    ]
    first, *others = [np.concatenate([a for t in c(work, groups).advantages for a in t]) for c in found]
    assert all(np.array_equal(first, other) for other in others)


def test_lambda_by_length_has_its_own_knob(played: tuple[Work, list[Group]]) -> None:
    work, groups = played

    def advantages(**fields: Any) -> list[float]:
        config = policy_gradient.Config(**fields)
        config.check()
        return [
            float(a)
            for t in policy_gradient.method(config).credit(work, groups).advantages
            for part in t
            for a in part
        ]

    assert advantages(credit="gae_decoupled") == advantages(credit="gae", decay=0.0)
    long = advantages(credit="gae_decoupled", adaptive=1e9)
    assert long == pytest.approx(advantages(credit="gae", decay=1.0), abs=1e-6)
    assert long != pytest.approx(advantages(credit="gae_decoupled"), abs=1e-3)
    with pytest.raises(
        ConfigError, match=r"adaptive: got 1\.0, which credit gae does not read; leave it out"
    ):
        advantages(credit="gae", adaptive=1.0)


TOGETHER: list[dict[str, Any]] = [
    {"credit": "gigpo", "loss": "cispo", "normaliser": "task", "updates": 2, "discount": 0.9},
    {"credit": "gae_bilevel", "loss": "gspo_turn", "normaliser": "turn", "updates": 2, "entropy": 0.01},
    {
        "credit": "spa_rl",
        "loss": "dual_clip",
        "rewards": "environment,visits=0.1",
        "updates": 2,
        "kl": 0.1,
        "kl_target": 0.5,
    },
    {"credit": "mt_grpo", "loss": "truncated", "kl": 0.2, "kl_place": "reward", "kl_target": 0.1},
    {"credit": "awr", "loss": "reinforce", "aggregation": "constant", "constant": 8.0},
    {"credit": "others", "loss": "masked", "group_size": 1, "tasks": 4, "normaliser": "seat"},
]


@pytest.mark.parametrize("fields", TOGETHER, ids=lambda fields: f"{fields['credit']}-{fields['loss']}")
def test_parts_train_together_and_resume_bit_for_bit(
    fields: dict[str, Any],
    runner: Any,
    rows: Rows,
    weights: Callable[[Path], str],
    interrupt: Callable[[int], None],
) -> None:
    given = {**PAIR, **fields}
    whole = runner.train("policy_gradient", **given)
    curve = rows(whole)
    assert weights(whole / "start") != weights(whole / "model")
    interrupt(1)
    stopped = runner.train("policy_gradient", **given)
    runner.resume(stopped)
    assert rows(stopped) == curve
    if "kl_target" in fields:
        first, second = (row["kl/coefficient"] for row in curve[1:])
        assert first == fields["kl"] and second != first


def test_a_penalty_in_the_reward_changes_credit_and_one_in_the_loss_does_not(
    played: tuple[Work, list[Group]],
) -> None:
    work, groups = played
    seen: list[Sequence[Group]] = []

    def assign(_: Work, given: Sequence[Group]) -> Credit:
        seen.append(given)
        return outcome_return(given)

    with torch.no_grad():
        for parameter in work.learner.reference.parameters():  # pyright: ignore[reportOptionalMemberAccess]
            parameter.mul_(0.9)
    Anchor(0.0).priced(assign)(work, groups)
    Anchor(0.5, "loss").priced(assign)(work, groups)
    metrics = Anchor(0.5, "loss", 1.0).priced(assign)(work, groups).metrics
    assert all(given is groups for given in seen)
    priced = Anchor(0.5, "reward").priced(assign)(work, groups)
    assert metrics[EPISODE] == priced.metrics[EPISODE] != 0
    before, after = (
        np.array([t.outcome.value for g in part for t in g.scored if isinstance(t.outcome, Score)])
        for part in (groups, seen[-1])
    )
    assert np.mean(before - after) == pytest.approx(0.5 * metrics[EPISODE], rel=1e-5)
    turns = [sum(t.reward for t in e.turns) for g in seen[-1] for e in g.scored]
    assert turns == pytest.approx(after.tolist(), abs=1e-6)


def test_the_weight_of_the_kl_is_told_again_by_the_curve() -> None:
    curve = [{"step": 0.0}, {EPISODE: 12.0, "credit/trajectories": 64.0}]
    work = cast(Work, SimpleNamespace(run=SimpleNamespace(metrics=lambda: curve)))
    assert Anchor(0.2, target=6.0).coefficient(work) == pytest.approx(0.200256)
    assert Anchor(0.2).coefficient(work) == 0.2


def episode(kind: str, amount: float, seat: str = "agent") -> Trajectory:
    turn = Turn(
        seat=seat,
        observation=(),
        prompt_ids=(1,),
        completion=Completion(token_ids=(1, 2), logprobs=(-1.0, -1.0), stop="stop"),
        action=Action(),
        reward=amount,
    )
    return Trajectory(
        task=Task(id=f"{kind}-{amount}", environment=kind, seed=0),
        turns=(turn,),
        outcome=Score(value=amount, is_success=True),
        stop=Stop.TERMINATED,
        seed=0,
        group=f"{kind}-{amount}",
        index=0,
    )


def test_a_kind_of_task_with_large_rewards_does_not_drown_the_others() -> None:
    episodes = [episode("a", 0.0), episode("a", 1.0), episode("b", 0.0), episode("b", 100.0)]
    groups = [Group(task=e.task, trajectories=(e,)) for e in episodes]
    assign: Assign = lambda _, given: outcome_return(given)  # noqa: E731
    none = cast(Work, None)

    def first(name: str) -> list[float]:
        return [float(turns[0][0]) for turns in normalised(assign, name)(none, groups).advantages]

    assert first("none") == [0, 1, 0, 100]
    assert first("task") == pytest.approx([-1, 1, -1, 1])
    pooled = first("token")
    assert pooled[1] - pooled[0] < 0.03 * (pooled[3] - pooled[2])
    assert set(NORMALISERS) == {"none", "token", "turn", "trajectory", "task", "seat"}
    assert by_environment(episodes[2], episodes[2].turns[0]) == "b"
    assert by_seat(episodes[0], replace(episodes[0].turns[0], seat="judge")) == "judge"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"credit": "gipo"}, "credit: got 'gipo'; did you mean 'gigpo'?"),
        ({"loss": "gsp"}, "loss: got 'gsp'; did you mean 'gspo'?"),
        ({"normaliser": "tasks"}, "normaliser: got 'tasks'; did you mean 'task'?"),
        ({"group_size": 1}, "group_size: got 1 with credit group.*use credit others or gae"),
        ({"tasks": 0}, "tasks: got 0; give 1 or more"),
        ({"group_size": 0, "credit": "return"}, "group_size: got 0; give 1 or more"),
        ({"updates": 0}, "updates: got 0; give 1 or more"),
        ({"credit": "others", "tasks": 1, "group_size": 1}, "got 1 episode of a step with credit others"),
        ({"constant": 64.0}, "constant: got 64.0 with aggregation sequence_mean"),
        ({"aggregation": "constant"}, "constant: got None with aggregation constant"),
        (
            {"aggregation": "constant", "constant": 0.0},
            "constant: got 0.0; give the tokens of a usual episode",
        ),
        (
            {"rewards": "success=0.5,economy"},
            "got economy=1 with success=0.5, and many calls.*give economy=0.5",
        ),
        ({"rewards": "success,economy=3<=2"}, "got economy=3 with success=1"),
        ({"decay": 0.9}, "decay: got 0.9, which credit group does not read; leave it out"),
        ({"credit": "gae", "std": "none"}, "std: got none, which credit gae does not read"),
        ({"loss": "cispo"}, "updates: got 1 with loss cispo, with which every ratio is 1"),
        ({"loss": "reinforce", "updates": 2}, "updates: got 2 with loss reinforce, which assumes tokens"),
        ({"credit": "awr", "normaliser": "token"}, "normaliser: got token with credit awr"),
        ({"credit": "best_of", "normaliser": "turn"}, "normaliser: got turn with credit best_of"),
        ({"kl_target": 1.0}, "kl_target: got 1.0 with kl 0.0"),
        ({"kl_place": "reward"}, "kl_place: got reward with kl 0.0"),
        ({"rewards": "sucess"}, "rewards: got 'sucess'; did you mean 'success'?"),
        ({"rewards": "success="}, "rewards: got 'success='; write name, name=weight"),
        ({"rewards": ""}, "rewards: got ''; write name"),
        ({"rewards": "success,success"}, "rewards: names of reward terms: got 'success' twice"),
        (
            {"rewards": "format@success,success"},
            "rewards: gate of the reward term format: got 'success', not an",
        ),
    ],
)
def test_parts_that_contradict_each_other_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        policy_gradient.Config(**fields).check()


@pytest.mark.parametrize(
    ("credit", "message"),
    [
        ("gigpo", "got one without state keys.*use grpo"),
        ("mt_grpo", "episodes without a reward before their last turn"),
        ("process", "episodes without a reward before their last turn"),
        ("vine", "got one without snapshots.*use ppo"),
    ],
)
def test_what_the_environment_lacks_is_refused_before_the_first_episode(
    credit: str, message: str, runner: Any
) -> None:
    plain = runner.config("grpo").environment.replace("Corridor", "Plain")
    with pytest.raises(ConfigError, match=message):
        runner.train("policy_gradient", environment=plain, credit=credit)


def test_credit_by_a_critic_needs_a_value_head(played: tuple[Work, list[Group]]) -> None:
    work, groups = played
    head, work.learner.value_head = work.learner.value_head, None
    try:
        with pytest.raises(UsageError, match=r"got a policy without a value head; say needs=Needs\(critic"):
            critic(work, groups)
        (batch,) = work.batches(samples_from(outcome_return(groups)))
        with pytest.raises(UsageError, match="got none; give the model a value head"):
            value()(work.learner.forward(batch), batch)
    finally:
        work.learner.value_head = head


def test_rewards_are_named_weighed_capped_and_gated() -> None:
    visits = Visits()
    own, brief, wrong, seen = terms("success=2, economy, format=0.5<=0.75@success, visits", visits)
    assert [term.name for term in (own, brief, wrong, seen)] == ["success", "economy", "format", "visits"]
    assert (own.weight, brief.gate, wrong.cap, wrong.gate) == (2, "success", (-0.75, 0.75), "success")
    turn = Turn(observation=(), prompt_ids=(), completion=Completion(token_ids=(1,), logprobs=(0.0,), stop="stop"),
                action=Action(error="what?"))  # fmt: skip
    won = Trajectory(task=Task(id="t", environment="e", seed=0), turns=(turn,) * 3, seed=0, group="t", index=0,
                     outcome=Score(value=9.0, is_success=True), stop=Stop.TERMINATED)  # fmt: skip
    paid = apply(won, (own, wrong))
    assert [t.reward_terms["format"] for t in paid.turns] == [-0.5, -0.25, 0]
    assert paid.outcome == Score(value=1.25, is_success=True)
    lost = apply(replace(won, outcome=Score(value=9.0, is_success=False)), (own, wrong))
    assert lost.outcome == Score(value=0.0, is_success=False)
    for name in {*TERMS, "visits"} - {"success"}:
        assert terms(f"success,{name}", visits)[1].name == name
    assert needs_states("environment,visits") and needs_states("new_state") and not needs_states("success")


def test_several_memories_are_one() -> None:
    seen: list[str] = []
    one, two = (cast(Any, SimpleNamespace(update=lambda _, name=name: seen.append(name))) for name in "ab")
    Memories(one, None, two).update([])
    assert seen == ["a", "b"]
