"""r_t = -β (log π - log π_ref) at every token, + r_φ(episode) at the last one: PPO against a reward model.

What `instruct_gpt` and `learning_to_summarize` share. The reward model is the policy ``reward_model``, a run of its
own; the reference is the policy that the run starts from. The critic is a policy of its own and begins as the reward
model (arXiv 2009.01325, section 3.4; 2203.02155, appendix C.4): it knows what the end is worth before the first step.
In the place of a run a model behind a chat endpoint may say what an episode is worth, from 0 to 1: a generative reward
model (`quintain.engines.judge`). The critic then begins as the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat, Share
from quintain.credit.gae import gae_tokens
from quintain.credit.scores import pay_scores, score_metrics
from quintain.credit.whiten import whiten
from quintain.engines.chat_client import is_endpoint
from quintain.engines.judge import Judge
from quintain.errors import ConfigError, UsageError
from quintain.learning.train_config import MAIN, EpisodesConfig, PolicySpec
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.losses.value import value
from quintain.methods.loops.critic import CriticPlan
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import CRITIC, CombinedState, Needs, TransformGroups, same_groups, sample_groups
from quintain.methods.rl.parts.kl import KLController
from quintain.methods.rlhf.mixing import Mixing
from quintain.rollout.verdicts import Verdicts
from quintain.types import NOTHING, Credit, Failure, Group, Trajectory, flatten_scored

REWARD_MODEL = "reward_model"
RUBRIC = "How well does what was said and done do what the task asks for?"
"""What a judge goes by where no rubric is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredConfig(EpisodesConfig):
    """A configuration whose episodes are paid by a reward model."""

    reward_model: str = ""
    """Run or folder of the reward model (train reward_model), or a model behind a chat endpoint that judges:
    http://127.0.0.1:8000/v1?model=NAME, and rubric=FILE where it is to have another rubric."""
    demonstrations: NonNegativeInt | str | None = 0
    """What is imitated before training, as for all methods; 0 by default, for --model is one that was taught."""
    learning_rate: float = 1e-4
    num_epochs: int = 4
    kl_coef: NonNegativeFloat = 0.05
    """β, the price of a nat between the policy and the one that it began as."""
    kl_target: PositiveFloat | None = None
    """KL of an episode, in nats, that β is adapted to (1909.08593); none leaves it fixed."""
    gae_lambda: Share = 0.95
    """λ of generalised advantage estimation; nothing is discounted."""
    clip: PositiveFloat = 0.2
    """The ratio is clipped to 1 ± this."""
    value_clip: PositiveFloat = 0.2
    """A value moves by no more than this in a step."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        EpisodesConfig.check(self)
        given = self.policies.get(REWARD_MODEL)
        if not self.reward_model and (given is None or not given.model):
            raise ConfigError(
                "reward_model: got none, and nothing else pays; train one (quintain train reward_model --model …) and "
                "give its run"
            )
        judge_of(self.reward_model)
        if self.kl_target is not None and not self.kl_coef:
            raise ConfigError(f"kl_target: got {self.kl_target} with kl_coef 0; give both, or leave it out")


def judge_of(reward_model: str) -> Judge | None:
    """Return the judge that `reward_model` names; None where it names a run.

    Raises:
        ConfigError: there is no such judge.
    """
    try:
        return Judge(reward_model, usual=RUBRIC) if is_endpoint(reward_model) else None
    except UsageError as error:
        raise ConfigError(str(error)) from error


@dataclass(slots=True)
class Judged:
    """What a judge gives for episodes: ``Judged(judge, Verdicts(0.01))``; one that it says nothing of has failed."""

    judge: Judge
    verdicts: Verdicts
    scores: dict[int, float] = field(default_factory=dict[int, float])
    """of the episodes that were judged last, by what they are to Python"""

    def ask(self, groups: Sequence[Group]) -> Sequence[Group]:
        """Return `groups` in which those episodes are no longer scored of which the judge said nothing.

        Raises:
            FailureRateError: these are too many.
        """
        trajectories = flatten_scored(groups)
        self.judge.prepare(trajectories)
        said = [self.judge.measure(trajectory) for trajectory in trajectories]
        read = self.verdicts.read(said)
        self.scores = {id(t): score for t, score in zip(trajectories, read, strict=True) if score is not None}
        failures = {
            id(t): each for t, each in zip(trajectories, said, strict=True) if isinstance(each, Failure)
        }

        def find_left(trajectory: Trajectory) -> Trajectory:
            failure = failures.get(id(trajectory))
            return trajectory if failure is None else replace(trajectory, outcome=failure)

        return [replace(group, trajectories=tuple(map(find_left, group.trajectories))) for group in groups]

    def score(self, groups: Sequence[Group], _: Estimates) -> Sequence[float]:
        """Return what the judge gave for the scored episodes of `groups`, in order."""
        return [self.scores[id(trajectory)] for trajectory in flatten_scored(groups)]


def against_reward_model(
    config: ScoredConfig,
    *,
    mixing: Mixing | None = None,
    tell: Callable[[Sequence[Group], Sequence[float]], Mapping[str, float]] = lambda _, __: NOTHING,
) -> OnPolicy:
    """Return PPO on the reward model of `config`, with a likelihood mixed in where `mixing` says so.

    `tell` has more metrics of groups and the scores of their episodes.
    """
    anchor = KLController(config.kl_coef, "reward", config.kl_target)
    model = judge_of(config.reward_model)
    judged = None if model is None else Judged(model, Verdicts(config.max_broken))
    reward: TransformGroups = same_groups if judged is None else judged.ask

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        scores = estimates.judged if judged is None else judged.score(groups, estimates)
        prices, metrics = anchor.token_rewards(groups, estimates)
        values = replace(estimates.critic, token_rewards=prices)
        found = whiten(gae_tokens(pay_scores(groups, scores), values, gae_lambda=config.gae_lambda))
        told = {**metrics, **score_metrics(groups, scores), **tell(groups, scores)}
        return replace(found, metrics={**found.metrics, **told})

    return OnPolicy(
        collect=sample_groups(config.episodes, 1),
        credit=credit,
        update=Update(loss=clip_ratio(config.clip, config.clip), keeps_zeros=True),
        companion=CriticPlan(
            update=Update(
                loss=value(clip=config.value_clip), keeps_zeros=True, has_values=True, is_on_policy=False
            ),
            imitates=None if mixing is None else mixing.draw_corpus,
        ),
        needs=Needs(
            critic=True,
            reference_logprobs=config.kl_coef > 0,
            reward_model=None if judged else PolicySpec(head="value", model=config.reward_model),
            others={
                CRITIC: PolicySpec(copies=MAIN if judged else REWARD_MODEL, head="value", is_trained=True)
            },
        ),
        reward=reward,
        state=CombinedState(anchor),
        measure=lambda _, __: NOTHING if judged is None else judged.verdicts.measure(),
    )
