"""Any idea of credit with any policy loss, and what contradicts itself is refused."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.build import make_episode, make_turn
from torch import Tensor

from quintain.config import options
from quintain.credit.outcome import outcome_return
from quintain.data.pack import PassSize, micro_batches
from quintain.data.samples import samples_from
from quintain.errors import ConfigError, UsageError
from quintain.learning.update import Update, prepare
from quintain.losses.value import value
from quintain.methods.loops.on_policy import Assign, Branches, Estimates, estimate
from quintain.methods.method import CombinedState, Needs, sample_groups
from quintain.methods.rl import policy_gradient
from quintain.methods.rl.parts.choices import IDEAS, LOSSES, NORMALISERS, by_environment, by_seat, normalise
from quintain.methods.rl.parts.kl import EPISODE, KLController
from quintain.methods.rl.parts.reward_terms import TERMS, needs_states, terms
from quintain.rewards.exploration import Visits
from quintain.rewards.terms import apply
from quintain.rollout.collect import Limits
from quintain.runs.context import TrainingContext, open_context
from quintain.store.run import Run
from quintain.types import Action, Credit, Group, Loss, Score, Task, Trajectory

Rows = Callable[[Path], list[dict[str, Any]]]
PAIR: dict[str, Any] = {"tasks": 2, "group_size": 3}


def test_whatever_can_be_chosen_stands_on_the_page_and_in_the_help() -> None:
    page = (Path(__file__).parents[3] / "docs" / "methods" / "policy_gradient.md").read_text(encoding="utf-8")
    told = [
        name for known in (IDEAS, LOSSES, NORMALISERS, TERMS) for name in known if f"`{name}`" not in page
    ]
    assert told == [], "say each in a table of docs/methods/policy_gradient.md"
    helps = {option.name: option.help for option in options(policy_gradient.Config)}
    for option, known in (("loss", LOSSES), ("normaliser", NORMALISERS)):
        untold = [name for name in known if not re.search(rf"\b{name}\b", helps[option])]
        assert untold == [], f"say each in the help of {option} in methods/rl/policy_gradient.py"


NEEDS = Needs(critic=True, reference_logprobs=True)
Played = tuple[TrainingContext, list[Group]]


@pytest.fixture(scope="module")
def played(runner: Any) -> Iterator[Played]:
    """A policy that has everything a method may ask for, and episodes that differ in outcome."""
    config = runner.config("policy_gradient", learning_rate=1e-3)
    limits = Limits(has_state_keys=True)
    folder = runner.folder / "played"
    with (
        Run.create(folder, recipe="policy_gradient", config=asdict(config)) as run,
        open_context(config, run, has_critic=True, policies=NEEDS.policies, limits=limits) as context,
    ):
        groups = sample_groups(3, 4)(context.collector, 1)
        assert len({t.outcome.value for g in groups for t in g.scored if isinstance(t.outcome, Score)}) > 1
        yield context, groups


def estimates(
    context: TrainingContext, groups: Sequence[Group], branches: Branches | None = None
) -> Estimates:
    """Everything that a method may ask for."""
    return estimate(context.policies, groups, NEEDS, branches or {})


def gradients(context: TrainingContext, credit: Credit, losses: Mapping[str, Loss]) -> dict[str, Tensor]:
    """The gradient of each of `losses` on the model, of a step on `credit`."""
    policy = context.policies.main
    parameters = list(policy.model.parameters())
    found = {name: torch.zeros(sum(p.numel() for p in parameters)) for name in losses}
    update = Update(loss=losses["reinforce"], aggregation="sequence_mean", has_reference=True)
    samples = samples_from(credit)
    for batch in prepare(context.policies, policy, samples, update).batches(
        range(len(samples)), update, PassSize(64)
    ):
        predictions = policy.forward(batch)
        for name, loss in losses.items():
            value = loss(predictions, batch).loss
            parts = torch.autograd.grad(value, parameters, retain_graph=True, materialize_grads=True)
            found[name] += torch.cat([part.flatten() for part in parts])
    return found


@pytest.mark.parametrize("name", IDEAS)
def test_at_the_sampler_every_loss_has_the_gradient_of_reinforce(name: str, played: Played) -> None:
    """The whole product of credit and losses: neither knows of the other."""
    context, groups = played
    method = policy_gradient.method(policy_gradient.Config(credit=name))
    method.state.update(groups)
    branches = method.branch(context.collector, 1, groups)
    assert bool(branches) == (name == "vine")
    credit = method.credit(groups, estimates(context, groups, branches))
    assert len(credit.trajectories) == (3 if name == "best_of" else 12)
    found = gradients(context, credit, {name: loss.make() for name, loss in LOSSES.items()})
    wanted = found["reinforce"]
    assert wanted.norm() > 1e-3
    for loss, each in found.items():
        assert torch.allclose(each, wanted, atol=1e-5 * float(wanted.norm()) + 1e-7), loss


def test_credit_is_the_same_whatever_the_loss(played: Played) -> None:
    context, groups = played
    known = estimates(context, groups)
    found = [
        policy_gradient.method(policy_gradient.Config(loss=name, num_epochs=2 - (name == "reinforce"))).credit
        for name in LOSSES
    ]
    first, *others = [np.concatenate([a for t in c(groups, known).advantages for a in t]) for c in found]
    assert all(np.array_equal(first, other) for other in others)


def test_lambda_by_length_has_its_own_option(played: Played) -> None:
    context, groups = played
    known = estimates(context, groups)

    def advantages(**fields: Any) -> list[float]:
        config = policy_gradient.Config(**fields)
        config.check()
        credit = policy_gradient.method(config).credit(groups, known)
        return [float(a) for t in credit.advantages for part in t for a in part]

    assert advantages(credit="gae_decoupled") == advantages(credit="gae", gae_lambda=0.0)
    long = advantages(credit="gae_decoupled", adaptive=1e9)
    assert long == pytest.approx(advantages(credit="gae", gae_lambda=1.0), abs=1e-6)
    assert long != pytest.approx(advantages(credit="gae_decoupled"), abs=1e-3)
    with pytest.raises(
        ConfigError, match=r"adaptive: got 1\.0, which credit gae does not read; leave it out"
    ):
        advantages(credit="gae", adaptive=1.0)


TOGETHER: list[dict[str, Any]] = [
    {"credit": "gigpo", "loss": "cispo", "normaliser": "task", "num_epochs": 2, "discount": 0.9},
    {
        "credit": "gae_bilevel",
        "loss": "gspo_turn",
        "normaliser": "turn",
        "num_epochs": 2,
        "entropy_coef": 0.01,
    },
    {
        "credit": "spa_rl",
        "loss": "dual_clip",
        "rewards": "environment,visits=0.1",
        "num_epochs": 2,
        "kl_coef": 0.1,
        "kl_target": 0.5,
    },
    {"credit": "mt_grpo", "loss": "truncated", "kl_coef": 0.2, "kl_place": "reward", "kl_target": 0.1},
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
        assert first == fields["kl_coef"] and second != first


def test_decoupled_weighs_by_the_sampler_and_clips_at_the_policy_as_the_step_began(played: Played) -> None:
    context, groups = played
    policy = context.policies.main
    method = policy_gradient.method(policy_gradient.Config(loss="clipped", decoupled=True))
    samples = [
        replace(
            sample, logprobs=np.where(sample.turn_id >= 0, sample.logprobs - np.log(3.0), 0.0).astype("f4")
        )
        for sample in samples_from(method.credit(groups, estimates(context, groups)))
    ]  # the sampler found each token three times less likely
    (batch,) = prepare(context.policies, policy, samples, method.update).batches(
        range(len(samples)), method.update, PassSize(1 << 20)
    )
    report = method.update.loss(policy.infer(batch), batch)
    assert report.metrics["importance/weight"] == pytest.approx(2.0)
    assert report.metrics["importance/capped_fraction"] == 1.0
    assert report.metrics["policy/clip_fraction"] == 0.0
    without = LOSSES["clipped"].make()(policy.infer(batch), batch)
    assert without.metrics["policy/clip_fraction"] > 0.2


def test_a_penalty_in_the_reward_changes_credit_and_one_in_the_loss_does_not(played: Played) -> None:
    context, groups = played
    seen: list[Sequence[Group]] = []

    def assign(given: Sequence[Group], _: Estimates) -> Credit:
        seen.append(given)
        return outcome_return(given)

    reference = list(context.policies["reference"].model.parameters())
    with torch.no_grad():
        for parameter in reference:
            parameter.mul_(0.9)
    known = estimates(context, groups)
    with torch.no_grad():
        for parameter in reference:
            parameter.div_(0.9)
    KLController(0.0).price(assign)(groups, known)
    KLController(0.5, "loss").price(assign)(groups, known)
    metrics = KLController(0.5, "loss", 1.0).price(assign)(groups, known).metrics
    assert all(given is groups for given in seen)
    priced = KLController(0.5, "reward").price(assign)(groups, known)
    assert metrics[EPISODE] == priced.metrics[EPISODE] != 0
    before, after = (
        np.array([t.outcome.value for g in part for t in g.scored if isinstance(t.outcome, Score)])
        for part in (groups, seen[-1])
    )
    assert np.mean(before - after) == pytest.approx(0.5 * metrics[EPISODE], rel=1e-5)
    turns = [sum(t.reward for t in e.turns) for g in seen[-1] for e in g.scored]
    assert turns == pytest.approx(after.tolist(), abs=1e-6)


def test_the_weight_of_the_kl_is_a_fold_over_the_metrics() -> None:
    curve = [{"step": 0.0}, {EPISODE: 12.0, "credit/trajectories": 64.0}]
    adapted, fixed, hurried = (KLController(0.2, target=target) for target in (6.0, None, 6.0))
    for row in curve:
        adapted.observe(row)
        fixed.observe(row)
    assert adapted.coefficient == pytest.approx(0.200256)
    assert fixed.coefficient == 0.2
    for row in [*curve, *curve]:
        hurried.observe(row)
    assert hurried.coefficient > adapted.coefficient


def test_the_loss_has_the_weight_of_the_step_at_hand(played: Played) -> None:
    context, groups = played
    policy, control = context.policies.main, KLController(0.2, target=6.0)
    samples, loss = samples_from(outcome_return(groups)), control.loss()
    update = Update(loss=loss, has_reference=True)
    (batch,) = prepare(context.policies, policy, samples, update).batches(
        range(len(samples)), update, PassSize(9999)
    )
    batch = replace(batch, extra=replace(batch.extra, reference_logprobs=batch.logprobs - 0.5))
    before = float(loss(policy.infer(batch), batch).loss)
    control.observe({EPISODE: 1200.0, "credit/trajectories": 6400.0})
    assert control.coefficient > 0.2
    after = float(loss(policy.infer(batch), batch).loss)
    assert after / before == pytest.approx(control.coefficient / 0.2, rel=1e-5)


def episode(kind: str, amount: float, seat: str = "agent") -> Trajectory:
    turn = make_turn((1, 2), logprob=-1.0, seat=seat, reward=amount)
    return make_episode(
        turn,
        task=Task(id=f"{kind}-{amount}", environment=kind, seed=0),
        outcome=Score(value=amount, is_success=True),
        group=f"{kind}-{amount}",
    )


def test_a_kind_of_task_with_large_rewards_does_not_drown_the_others() -> None:
    episodes = [episode("a", 0.0), episode("a", 1.0), episode("b", 0.0), episode("b", 100.0)]
    groups = [Group(task=e.task, trajectories=(e,)) for e in episodes]
    assign: Assign = lambda given, _: outcome_return(given)  # noqa: E731

    def first(name: str) -> list[float]:
        return [float(turns[0][0]) for turns in normalise(assign, name)(groups, Estimates()).advantages]

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
        ({"tasks": 0}, "tasks: got 0; give an integer of 1 or more"),
        (
            {"group_size": 0, "credit": "return"},
            "group_size: got 0; give an integer of 1 or more",
        ),
        ({"num_epochs": 0}, "num_epochs: got 0; give an integer of 1 or more"),
        ({"credit": "others", "tasks": 1, "group_size": 1}, "got 1 episode of a step with credit others"),
        ({"constant": 64.0}, "constant: got 64.0 with aggregation sequence_mean"),
        ({"aggregation": "constant"}, "constant: got None with aggregation constant"),
        (
            {"aggregation": "constant", "constant": 0.0},
            "constant: got 0.0; give a number above 0",
        ),
        (
            {"rewards": "success=0.5,economy"},
            "got economy=1 with success=0.5, and many calls.*give economy=0.5",
        ),
        ({"rewards": "success,economy=3<=2"}, "got economy=3 with success=1"),
        ({"gae_lambda": 0.9}, "gae_lambda: got 0.9, which credit group does not read; leave it out"),
        ({"credit": "gae", "std": "none"}, "std: got none, which credit gae does not read"),
        (
            {"decoupled": True, "loss": "truncated"},
            "decoupled: got true with loss truncated, which has no ratio",
        ),
        ({"decoupled": True, "kl_coef": 0.1}, "decoupled: got true with kl_coef 0.1 in the loss"),
        ({"loss": "cispo"}, "num_epochs: got 1 with loss cispo, with which every ratio is 1"),
        (
            {"loss": "reinforce", "num_epochs": 2},
            "num_epochs: got 2, in 1 minibatches, with loss reinforce, which assumes tokens",
        ),
        ({"credit": "awr", "normaliser": "token"}, "normaliser: got token with credit awr"),
        ({"credit": "best_of", "normaliser": "turn"}, "normaliser: got turn with credit best_of"),
        ({"kl_target": 1.0}, "kl_target: got 1.0 with kl_coef 0.0"),
        ({"kl_place": "reward"}, "kl_place: got reward with kl_coef 0.0"),
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


def test_credit_by_a_critic_needs_a_value_head(played: Played) -> None:
    context, groups = played
    reference = context.policies["reference"]
    with pytest.raises(UsageError, match="values of the policy reference: got one without a value head"):
        reference.token_values(groups[0].scored)
    with pytest.raises(UsageError, match=r"values of a critic: got none; say needs=Needs\(critic=True\)"):
        policy_gradient.method(policy_gradient.Config(credit="gae")).credit(groups, Estimates())
    (batch,) = micro_batches(samples_from(outcome_return(groups)), max_tokens=9999)
    with pytest.raises(UsageError, match="got none; give the model a value head"):
        value()(reference.forward(batch), batch)


def test_rewards_are_named_weighed_capped_and_gated() -> None:
    visits = Visits()
    own, brief, wrong, seen = terms("success=2, economy, format=0.5<=0.75@success, visits", visits)
    assert [term.name for term in (own, brief, wrong, seen)] == ["success", "economy", "format", "visits"]
    assert (own.weight, brief.gate, wrong.cap, wrong.gate) == (2, "success", (-0.75, 0.75), "success")
    turn = make_turn((1,), logprob=0.0, prompt=(), action=Action(error="what?"))
    won = make_episode(*(turn,) * 3, outcome=Score(value=9.0, is_success=True), group="t")
    paid = apply(won, (own, wrong))
    assert [t.reward_terms["format"] for t in paid.turns] == [-0.5, -0.25, 0]
    assert paid.outcome == Score(value=1.25, is_success=True)
    lost = apply(replace(won, outcome=Score(value=9.0, is_success=False)), (own, wrong))
    assert lost.outcome == Score(value=0.0, is_success=False)
    for name in {*TERMS, "visits"} - {"success"}:
        assert terms(f"success,{name}", visits)[1].name == name
    assert needs_states("environment,visits") and needs_states("new_state") and not needs_states("success")


def test_several_states_are_one() -> None:
    """A part is told what it listens to, in order; one that is None is nobody."""
    seen: list[str] = []

    class Episodes:
        def update(self, groups: Sequence[Group]) -> None:
            seen.append(f"episodes {len(groups)}")

    class Curve:
        def observe(self, metrics: Mapping[str, float]) -> None:
            seen.append(f"curve {metrics['x']}")

    class Both(Episodes, Curve):
        pass

    folds = CombinedState(Episodes(), None, Curve(), Both())
    folds.update([])
    folds.observe({"x": 1.0})
    assert seen == ["episodes 0", "episodes 0", "curve 1.0", "curve 1.0"]
    CombinedState().update([])
    CombinedState().observe({})
