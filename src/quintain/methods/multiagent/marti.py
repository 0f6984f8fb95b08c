"""MARTI (github.com/TsinghuaC3I/MARTI): answers of a team are paid one by one, by what came before them.

R' = R + α (R - Q), or R + α (R + Q - 1); A = (R' - mean) / std over the answers of an agent to the same task.

Rollouts are of the whole team, rewards are allocated to answers, and each agent learns from its own. R says whether an
answer is right, Q is the mean R of the agent's answers before it, or of all agents'. With ``--process implicit`` R is
not asked turn by turn: a model that began as the policy is fitted to outcomes alone, σ(Σ s_t) with s_t = β · mean log
π/π_ref of a turn, and s_t pays the turn (AgentPRM). Groups of an agent whose answers all have the same R are left out,
by R and not by R', which leaves 0 to 1.

Differences to the project: teams are files (docs/teams.md), and debates alone were measured; an answer is graded by
being tried in the environment; neither a generative reward model, labels by majority (`agent0` has them), tree search
nor weights for another sampler are a part of it. Sign and logarithm of the implicit model's loss are those of a cross
entropy, where its documentation has neither. Measured on tables, where the project has mathematics and code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from quintain.config.ranges import NonNegativeFloat, PositiveFloat
from quintain.credit.agents import over_agents
from quintain.credit.implicit_reward import fit_outcomes, score_turns
from quintain.data.seats import order_turns
from quintain.learning.train_config import GroupConfig, OnPolicyConfig, PolicySpec
from quintain.learning.update import Update, learn
from quintain.losses.policy import clip_ratio, reinforce
from quintain.methods.loops.on_policy import Companion, OnPolicy, hold
from quintain.methods.method import Needs, sample_groups
from quintain.rewards.allocation import Shape, Whose, allocate
from quintain.types import ANSWER, Credit, Group, Trajectory, flatten_scored, is_constant

if TYPE_CHECKING:
    from quintain.runs.context import TrainingContext

JUDGE = "process"
"""The policy that is the implicit reward model, and the reward term that it pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of MARTI."""

    environment: str = "sums?revisions=0"
    agent: str = "team?of=panel"
    process: Literal["answers", "implicit"] = "answers"
    """What R of a turn is: whether it answers right, or the score of a model that was fitted to outcomes."""
    shape: Shape = "margin"
    """Δ: margin, R - Q, or quality, R + Q - 1."""
    history: Whose = "own"
    """Whose earlier answers Q is the mean of: own, or all."""
    alpha: NonNegativeFloat = 0.5
    """Weight of Δ; 0 pays R."""
    beta: PositiveFloat = 1.0
    """β of the implicit model's scores."""
    clip: PositiveFloat = 0.2
    """The ratio is clipped to 1 ± this."""
    kl_coef: NonNegativeFloat = 0.001
    """β of the KL (k3) to the starting policy in the loss."""


def method(config: Config) -> OnPolicy:
    """Return MARTI as `config` describes it."""
    is_implicit = config.process == "implicit"
    plain = OnPolicy(
        collect=sample_groups(config.tasks, config.group_size),
        reward=lambda groups: pay_answers(groups, config),
        keep=lambda groups: drop_agreed(groups, term_of(config)),
        credit=lambda groups, _: over_agents(groups, pays="turn"),
        update=Update(loss=clip_ratio(config.clip, config.clip)),
        companion=ImplicitPlan(config.beta) if is_implicit else None,
        needs=Needs(
            answers=not is_implicit,
            reference_logprobs=is_implicit,
            others={JUDGE: PolicySpec(is_trained=True)} if is_implicit else {},
        ),
    )
    return hold(plain, kl_coef=config.kl_coef, entropy_coef=0.0)


def term_of(config: Config) -> str:
    """Return the reward term that is R."""
    return JUDGE if config.process == "implicit" else ANSWER


def pay_answers(groups: Sequence[Group], config: Config) -> list[Group]:
    """Return `groups` whose turns are paid R' where they have an R, and nothing else."""
    trajectories, term = flatten_scored(groups), term_of(config)
    paid: dict[tuple[int, int], float] = {}
    for order in order_turns(trajectories):
        turns = {(i, k): trajectories[i].turns[k] for i, k in order}
        answers = {place: turn for place, turn in turns.items() if term in turn.reward_terms}
        spoken = [(turn.speaker, turn.reward_terms[term]) for turn in answers.values()]
        shaped = allocate(spoken, shape=config.shape, history=config.history, alpha=config.alpha)
        paid |= dict(zip(answers, shaped, strict=True))
    numbers = {id(trajectory): i for i, trajectory in enumerate(trajectories)}

    def pay(trajectory: Trajectory) -> Trajectory:
        if id(trajectory) not in numbers:
            return trajectory
        i = numbers[id(trajectory)]
        turns = tuple(replace(turn, reward=paid.get((i, k), 0.0)) for k, turn in enumerate(trajectory.turns))
        return replace(trajectory, turns=turns)

    return [replace(group, trajectories=tuple(map(pay, group.trajectories))) for group in groups]


def drop_agreed(groups: Sequence[Group], term: str) -> list[Group]:
    """Keep the groups of agents whose answers were not all given the same R, the reward term `term`."""

    def differ(group: Group) -> bool:
        told = [turn.reward_terms.get(term) for t in group.scored for turn in t.turns]
        return not is_constant([reward for reward in told if reward is not None])

    return [group for group in groups if differ(group)]


@dataclass(frozen=True, slots=True)
class ImplicitPlan:
    """An implicit process reward model beside the policy: ``ImplicitPlan(beta=1.0)``."""

    beta: float

    @property
    def own_rates(self) -> tuple[str, ...]:
        """It learns at the rate of its model."""
        return ()

    @property
    def has_teacher(self) -> bool:
        """Nobody else teaches."""
        return False

    def start(self, context: TrainingContext, config: OnPolicyConfig) -> ImplicitPhase:
        """Return what it does in a run."""
        return ImplicitPhase(self.beta, context, config)


class ImplicitPhase(Companion):
    """Scores turns before they are credited, and is fitted to the outcomes of the step after."""

    def __init__(self, beta: float, context: TrainingContext, config: OnPolicyConfig) -> None:
        self.beta, self.context, self.config = beta, context, config
        self._fit: Credit | None = None

    def pay(self, step: int, groups: Sequence[Group]) -> tuple[Sequence[Group], Mapping[str, float]]:
        """Return `groups` whose turns have their score as the reward term `JUDGE`."""
        trajectories = flatten_scored(groups)
        own = self.context.policies[JUDGE].token_logprobs(trajectories)
        reference = self.context.policies["reference"].token_logprobs(trajectories)
        self._fit = fit_outcomes(trajectories, own, reference, beta=self.beta)
        scores = {
            id(t): values
            for t, values in zip(trajectories, score_turns(own, reference, beta=self.beta), strict=True)
        }

        def score(trajectory: Trajectory) -> Trajectory:
            values = scores.get(id(trajectory))
            if values is None:
                return trajectory
            turns = tuple(
                replace(turn, reward_terms={**turn.reward_terms, JUDGE: value})
                for turn, value in zip(trajectory.turns, values, strict=True)
            )
            return replace(trajectory, turns=turns)

        scored = [replace(group, trajectories=tuple(map(score, group.trajectories))) for group in groups]
        return scored, {"implicit/cross_entropy": self._fit.metrics["implicit/cross_entropy"]}

    def learn(self, step: int, credit: Credit) -> Mapping[str, float]:
        """Go down the cross entropy of the outcomes of `step` once; return what that did."""
        assert self._fit is not None, "a step is paid before it is learned from"
        update = Update(loss=reinforce(), is_on_policy=False, num_epochs=1, num_minibatches=1)
        report = learn(
            self.context.policies, self._fit, update, self.config,
            step=step, seed=self.context.seed("implicit", step), policy=JUDGE,
        )  # fmt: skip
        return {} if report is None else {"implicit/grad_norm": report.grad_norm}
