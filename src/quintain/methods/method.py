"""What a method is: the values that its file fills in, and the loop that they stand in.

A method's file has a frozen dataclass `Config` and a function ``method(config)`` that returns one of five values:

- `OnPolicy`: collect → reward → keep → credit → update, with the policy as it is at every step;
- `Offline`: a data set of samples or preference pairs → update;
- `Rounds`: collect → build data → train on it offline, again;
- `Replay`: collect → buffer → updates of the critics → updates of the policy;
- `Contrastive`: pairs of query and document → updates of an embedder, without any policy.

The loops stand in `quintain.methods.loops`. A field that a method leaves out does nothing. Whatever a method remembers
from step to step is a fold over recorded episodes and metrics (`State`), so that a resumed run knows what the first
one knew. Nothing here imports torch: the flags of a method are read from its `Config` without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from quintain.credit.layout import outcome_of
from quintain.data.comparisons import Labeller
from quintain.data.seats import comparable_groups
from quintain.errors import UsageError
from quintain.learning.job import MAIN, ColdStart, PolicySpec
from quintain.learning.update import Update
from quintain.types import (
    NOTHING,
    Action,
    Comparison,
    Credit,
    Example,
    Group,
    Pair,
    Sample,
    Task,
    Trajectory,
    is_constant,
)

if TYPE_CHECKING:
    from quintain.agents.protocol import Agent
    from quintain.credit.layout import Critic, TokenArrays
    from quintain.credit.turn_td import TurnValues
    from quintain.data.pipeline import PipelineResult
    from quintain.environments.noisy import NoisyExpert
    from quintain.environments.protocol import Corpus, Environment
    from quintain.learning.policies import Policies
    from quintain.rollout.proposals import Proposer
    from quintain.rollout.replay import Walk
    from quintain.rollout.samplers import Conversant
    from quintain.rollout.views import Prefix


class Collector(Protocol):
    """Where a method's episodes come from; everything that is sampled is recorded in the journal first."""

    environment: str
    """spec of the training environment"""

    def seed(self, *parts: int | str) -> int:
        """Return the seed of the run that `parts` name."""
        ...

    def tasks(self, step: int, count: int) -> list[Task]:
        """Return the `count` training tasks of `step`."""
        ...

    def sample(
        self,
        step: int,
        tasks: Sequence[Task],
        *,
        size: int,
        max_turns: int | None = None,
        agent: Callable[[Agent], Agent] | None = None,
        later_turns: Callable[[int], int | None] | None = None,
        again: int = 0,
    ) -> list[Group]:
        """Return `size` episodes of each of `tasks`; `agent` wraps the harness for these episodes alone.

        `again` counts the times that some of these tasks were sampled in this step before: the episodes are others,
        and stand in groups of their own. In lockstep only.

        `later_turns` says that later steps ask for the same of tasks of their own, as many, with so many turns at most:
        an asynchronous rollout with a `max_staleness` then begins them while the last episodes of this step end.
        """
        ...

    def continue_from(
        self,
        step: int,
        prefixes: Sequence[Prefix],
        *,
        size: int,
        seed: int | None = None,
        max_turns: int | None = None,
        phase: str = "branch",
        teacher: NoisyExpert | Conversant | None = None,
        by: str = "",
        again: int = 0,
        is_answered: bool = True,
    ) -> list[Group]:
        """Return `size` ways on from each of `prefixes`, as whole episodes.

        They are sampled by the policy `by`, where that is given, or played by the `teacher`. They are recorded under
        `phase`, which a state is told again if it is ``train``; `again` as in `sample`. Where one turn is all that is
        looked at, and not what comes of it, say that it is not `is_answered`: it counts as tokens, not as a step.
        """
        ...

    def answers(self, step: int, contexts: Sequence[Trajectory], *, size: int) -> list[Group]:
        """Return `size` answers of the policy to the prompt of the one turn of each of `contexts`, in no environment.

        What an answer does is read, and not carried out: outcomes are 0. They are recorded as branches of the step.
        """
        ...

    def in_hindsight(self, trajectories: Sequence[Trajectory]) -> list[Trajectory | None]:
        """Return each episode under the task that it solved; None where it solved none."""
        ...

    def walks(self, trajectories: Sequence[Trajectory]) -> list[Walk]:
        """Carry out recorded episodes again, to continue them at any of their turns.

        One that does not repeat, such as a page with a clock, is no error: nothing goes on from it (its groups in
        `continue_from` are empty), and the share of such is the metric ``branch/lost``. States are compared by their
        keys, where the environment has them and the method ``Needs(branches=True)``, else by what is shown.
        """
        ...

    def demonstrations(self, *teachers: NoisyExpert, agent: str = "") -> list[Trajectory]:
        """Return what the job imitates: episodes of the teacher, or conversations; a resumed run repeats it exactly.

        Where `teachers` are given, each of them shows as many tasks, the same ones, in the place of the job's; the
        index of an episode is the number of its teacher. With `agent`, the same as the prompts of another harness show
        it; these are not recorded.
        """
        ...

    @property
    def expert_environment(self) -> Callable[[], Environment]:
        """What makes an environment whose `expert_action` is the expert's: the environment's own, or a recorded one."""
        ...

    def expert_tasks(self, step: int, count: int) -> list[Task]:
        """Return the training tasks of `step` that the expert can show, at most `count`: of a recorded one, its own."""
        ...

    def shown(
        self, tasks: Sequence[Task], *, by: Mapping[str, Sequence[Action]] | None = None
    ) -> list[Trajectory]:
        """Return the scored ones of an episode of the expert on each of `tasks`; they are not recorded.

        It is the environment's, or somebody whose episodes `demonstrations` names; see `expert_tasks`. Where it is
        known what is to be done, it is that, `by` the id of the task.
        """
        ...

    def proposed(self, step: int, tasks: Sequence[Task], by: Proposer | None = None) -> list[Task | None]:
        """Return what is proposed in the place of each of `tasks`, by how it begins; None where that is no task.

        `by` is a model that is asked; without one the environment draws it. Whether it can be solved is not known.
        """
        ...

    def hidden(self, tasks: Sequence[Task]) -> list[str]:
        """Return what the environment hides from agents at the beginning of each of `tasks`."""
        ...

    def logprobs(self, trajectories: Sequence[Trajectory], *, by: str) -> TokenArrays:
        """Return the log-probs of the sampled tokens by the policy `by`: [trajectory][turn] → [tokens]."""
        ...

    def openings(self, tasks: Sequence[Task]) -> list[Trajectory]:
        """Return how each of `tasks` begins, as an episode of one turn in which nothing is said; none is recorded."""
        ...

    def values(self, trajectories: Sequence[Trajectory], *, by: str) -> Sequence[Sequence[float]]:
        """Return what the critic `by` says before each turn of `trajectories`: [trajectory][turn]."""
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the tokens of `text`, in the tokenizer of the policy."""
        ...

    def preferences(self) -> list[Pair]:
        """Return the preferences that the job names; a resumed run repeats them exactly."""
        ...

    def labelled_answers(self) -> list[Trajectory]:
        """Return the answers of the job's preferences one by one, solved where they are good."""
        ...

    def corpus(self, *, is_apart: bool = False) -> list[Trajectory]:
        """Return the conversations that the job names as its corpus; a resumed run repeats them exactly.

        If it `is_apart`, they are not written for the environment: they have tools of their own, or none.
        """
        ...

    def starting_groups(self, *, tasks: int, size: int, are_shown: bool = False) -> list[Group]:
        """Return `size` episodes of each of `tasks` tasks by the starting policy, sampled once in a run.

        With `are_shown` they are tasks that the expert can show.
        """
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids`, in the tokenizer of the policy."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a method asks of the run: ``Needs(critic=True)``. What is missing is refused before the first episode."""

    critic: bool = False
    """values of the policy `critic_policy`, which the credit reads: of a value head on the main one, or of another"""
    critic_policy: str = MAIN
    """one of `others`, with a value head and an optimizer; see `OnPolicy.critic`"""
    reference: bool = False
    """the frozen starting policy, as the policy ``reference``"""
    renews_reference: bool = False
    """that ``reference`` is the policy as it was when the round or phase began, not as the run began (`Rounds`,
    `Replay`)"""
    reference_acts: bool = False
    """that ``reference`` samples as well, for episodes that are continued by it"""
    reward_model: PolicySpec | None = None
    """the policy ``reward_model``, whose scores of the episodes the credit reads"""
    others: Mapping[str, PolicySpec] = NOTHING
    """more policies beside the main one, by name"""
    reference_logprobs: bool = False
    """log-probs of the sampled tokens under the policy ``reference``, which the credit reads"""
    state_keys: bool = False
    """an environment that can recognise its states"""
    turn_rewards: bool = False
    """rewards before the last turn"""
    answers: bool = False
    """turns that the environment calls answers, by the reward term ``answer``"""
    branches: bool = False
    """episodes that are taken up again at their turns: states are recorded where the environment tells them apart"""
    snapshots: bool = False
    """an environment that can be brought back to an earlier state"""
    environment: bool | None = None
    """an environment to act in; None: as the kind of method has it, all but `Offline` and `Contrastive`"""
    expert: bool = False
    """an environment that knows a good next action, or recorded episodes of an expert (demonstrations=FILE)"""
    expert_anywhere: bool = False
    """that the expert is asked in states that the policy came to, of which no recording says anything"""
    tools: bool = False
    """an environment with tools, whose calls are counted"""
    legal_actions: bool = False
    """an environment that lists its legal actions"""
    privileged: bool = False
    """an environment that says what it hides from agents"""
    proposals: bool = False
    """an environment that knows what could be asked for, whether or not it can be done"""

    @property
    def policies(self) -> dict[str, PolicySpec]:
        """The policies beside the main one, by name."""
        follows = MAIN if self.renews_reference else ""
        spec = PolicySpec(follows=follows, rate=1.0 - bool(follows), acts=self.reference_acts)
        has_reference = (
            self.reference or self.renews_reference or self.reference_acts or self.reference_logprobs
        )
        return {
            **({"reference": spec} if has_reference else {}),
            **({"reward_model": self.reward_model} if self.reward_model is not None else {}),
            **self.others,
        }


Branches = Mapping[tuple[int, int], Group]
"""(number of the scored trajectory, number of its turn) → episodes that were continued from before that turn"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """What is known of the kept episodes of a step when credit is assigned, in the order of `scored` trajectories."""

    values: Critic | None = None
    """of the critic, before it is trained on them; None without ``Needs(critic=True)``"""
    reference: TokenArrays | None = None
    """log-probs of the sampled tokens under the reference; None without ``Needs(reference_logprobs=True)``"""
    scores: Sequence[float] | None = None
    """of the reward model; None without ``Needs(reward_model=…)``"""
    branches: Branches = NOTHING  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    """what `OnPolicy.branch` returned"""

    @property
    def critic(self) -> Critic:
        """The values of the critic; an error names the field that asks for one."""
        if self.values is None:
            raise UsageError("values of a critic: got none; say needs=Needs(critic=True) in the method")
        return self.values

    @property
    def judged(self) -> Sequence[float]:
        """The scores of the reward model; an error names the field that asks for one."""
        if self.scores is None:
            raise UsageError(
                "scores of a reward model: got none; say needs=Needs(reward_model=…) in the method"
            )
        return self.scores


class State(Protocol):
    """What a method knows from earlier steps, such as how often a state was visited."""

    def update(self, groups: Sequence[Group]) -> None:
        """Take in the recorded groups of the next step, before they are rewarded."""
        ...

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Take in the metrics of a step that is done."""
        ...


class Folds:
    """Several states as one; those that are None are left out: ``Folds(visits, None)``.

    A part may have `update`, `observe` or both.
    """

    def __init__(self, *parts: Any) -> None:
        self.parts = [part for part in parts if part is not None]

    def update(self, groups: Sequence[Group]) -> None:
        """Let every part take in the recorded groups of the next step."""
        for part in self.parts:
            if hasattr(part, "update"):
                part.update(groups)

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Let every part take in the metrics of a step that is done."""
        for part in self.parts:
            if hasattr(part, "observe"):
                part.observe(metrics)


class Influence(Protocol):
    """What training on data alone would change: each time one update is made, measured and undone."""

    def __call__(self, blocks: Sequence[Sequence[Pair]], tasks: Sequence[Task]) -> list[float]:
        """Return for each of `blocks` by how much one update on it raises the share of `tasks` that is solved."""
        ...


Choose = Callable[[Influence, Collector, int, Sequence[Pair]], Sequence[Pair]]
"""(influence, collector, round, pairs) → those that are trained on"""
Collect = Callable[[Collector, int], list[Group]]
"""(collector, step) → the episodes of the step"""
Change = Callable[[Sequence[Group]], Sequence[Group]]
"""groups → groups with other rewards, or fewer groups"""
Branch = Callable[[Collector, int, Sequence[Group]], Branches]
"""(collector, step, kept groups) → episodes that continue theirs"""
Assign = Callable[[Sequence[Group], Estimates], Credit]
"""(kept groups, estimates) → how much each sampled token mattered"""
Measure = Callable[[Sequence[Group], Callable[[Sequence[int]], str]], Mapping[str, float]]
"""(sampled groups, decode) → metrics of the method's own"""


def same_groups(groups: Sequence[Group]) -> Sequence[Group]:
    """Return `groups`: rewards and filters that change nothing."""
    return groups


def no_preparation(_: Collector) -> None:
    """Do nothing before the first step."""


def no_branches(_: Collector, __: int, ___: Sequence[Group]) -> Branches:
    """Continue no episode."""
    return {}


def no_metrics(_: Sequence[Group], __: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
    """Measure nothing of the method's own."""
    return NOTHING


PLAIN = Labeller()
"""A labeller who never errs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A reward that people teach while the policy learns: ``Compared(members=("reward_1", "reward_2"), …)``.

    Segments of episodes are compared, an ensemble of reward models is fitted to the answers, and turns are paid what it
    says (Deep RL from Human Preferences, arXiv 1706.03741).
    """

    members: tuple[str, ...]
    """policies with a value head that are trained, see `Needs.others`"""
    queries: Callable[[int], int]
    """step → comparisons that are asked for before it; 1 or more at step 1"""
    update: Update
    """how members learn from the answers, in epochs of minibatches of `batch_size`"""
    labels: str = "synthetic"
    """who answers: ``synthetic``, ``ask`` (people, in the run's folder), or the file in which people do"""
    labeller: Labeller = PLAIN
    """answers by the environment's turn rewards, where nobody is asked"""
    patience: float = 24.0
    """hours that a step waits for people"""
    segment: int = 4
    """turns of a side"""
    sees_history: bool = False
    """whether a turn is scored after all that came before it; else by what was observed and done in it alone"""
    candidates: int = 8
    """pairs that are drawn for every one that is asked for, which are those that the members differ on most; 1: none is
    chosen"""
    memory: int = 512
    """newest episodes out of which segments are drawn"""
    batch_size: int = 16
    """comparisons of a minibatch"""
    rate: float = 1.0
    """factor on the learning rate"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPolicy:
    """Sample with the policy as it is, learn from it, again: ``OnPolicy(collect=…, credit=…, update=Update(…))``."""

    collect: Collect
    credit: Assign
    update: Update
    reward: Change = same_groups
    keep: Change = same_groups
    branch: Branch = no_branches
    needs: Needs = Needs()
    cold_start: ColdStart | None = None
    """what is imitated before the first step; None: the job's demonstrations as they come"""
    prepare: Callable[[Collector], None] = no_preparation
    """is called once before the first step, also by a resumed run"""
    rehearsal: Rehearsal | None = None
    """what the whole policy imitates every few steps, after their update"""
    mixing: Mixing | None = None
    """what it imitates in every update, in the same gradient"""
    critic: Update | None = None
    """how the policy ``needs.critic_policy`` learns from the returns of a step, after the main one"""
    compared: Compared | None = None
    """what turns are paid in the place of the environment's rewards, before `reward`"""
    state: State = field(default_factory=Folds)
    measure: Measure = no_metrics


Data = Sequence[Example] | Sequence[Pair] | Sequence[Comparison]
"""what an offline data set holds"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    """Learn from a data set that is there before the first step: ``Offline(data=…, update=Update(…))``."""

    data: Callable[[Collector], PipelineResult | Sequence[Trajectory] | Sequence[Pair] | Sequence[Comparison]]
    """the data set: what a pipeline made, whole episodes, preferences or comparisons; called once, also by a resumed
    run"""
    update: Update
    """its epochs and minibatches are not read: a step is one batch of `batch_size`, in an order of each epoch's own"""
    batch_size: int = 32
    """trajectories, or pairs, of a step"""
    odds: Callable[[Sequence[Example]], Sequence[float]] | None = None
    """how likely each example is to be the next sample of a step, which is then drawn anew and may repeat; None: all of
    them in turn"""
    draws_anew: bool = False
    """draw every step's batch from all the data, instead of going through it in epochs"""
    lr_schedule: Callable[[int], float] = lambda _: 1.0
    """factor on the learning rate at a step, from 1"""
    needs: Needs = Needs()
    metrics: Callable[[Data], Mapping[str, float]] = lambda _: NOTHING
    has_warm_start: bool = True
    """whether the demonstrations are imitated before training, where the configuration says so"""
    is_first: bool = False
    """whether it begins with the model as it is in comparisons, too, where others begin with a policy that imitated"""
    held_out: float = 0.0
    """share of the data that is not learned from; its loss is measured at every evaluation"""
    examine: Callable[[Policies, Data], Mapping[str, float]] = lambda _, __: NOTHING
    """(policies, what is held out) → what every evaluation measures of them besides"""
    plays: bool = True
    """whether evaluations play held-out tasks; what is trained to score and not to act does not"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Improve:
    """One training on the episodes of a round: ``Improve(build=Pipeline(threshold(0.5)), rate=0.5)``."""

    build: Callable[[Sequence[Group]], PipelineResult | Sequence[Pair]]
    """episodes of the round → what is imitated (a `Pipeline`), or pairs of which one side is preferred"""
    rate: float = 1.0
    """factor on the learning rate"""
    update: Update | None = None
    """how it learns; None: as the rounds do"""
    policy: str = MAIN
    """who learns; another one than the main policy is among ``needs.others`` and learns in epochs"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSteps:
    """How long a round trains where it is not by epochs: ``OptimizerSteps(count=lambda round: 40, batch_size=8)``."""

    count: Callable[[int], int]
    """number of the round, from 1 → optimizer steps"""
    batch_size: int
    """episodes of a step"""
    falls: bool = False
    """whether the rate falls over the steps of a round, from its whole at the first to the last part at the last"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixing:
    """A likelihood in the gradient of every update of RL: ``Mixing(base=…, weight=1.0, batch_size=16)``.

    The objective is that of the update plus `weight` · E[log π] over the trained tokens of `base`, averaged over these
    alone, whatever the update's are averaged over (PPO-ptx: InstructGPT, arXiv 2203.02155, eq. 2).
    """

    base: Callable[[Collector], Sequence[Trajectory]]
    """conversations; called once, also by a resumed run"""
    weight: float
    batch_size: int
    """conversations beside each minibatch"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Imitation by the whole policy between steps of RL: ``Rehearsal(every=8, build=Pipeline(solved()), …)`` (iRe-VLA).

    Half of every batch, or more, is of the base, so that what was known before is not forgotten.
    """

    every: int
    """steps from one to the next"""
    build: Callable[[Sequence[Group]], PipelineResult]
    """episodes of a step → what is imitated of them, in every rehearsal from then on"""
    base: Callable[[Collector], Sequence[Trajectory]]
    """episodes that every batch has; called once, also by a resumed run"""
    update: Update
    steps: OptimizerSteps
    """optimizer steps of a rehearsal, by its number from 1"""
    rate: float = 1.0
    """factor on the learning rate"""
    known: int = 0
    """tasks of the base that are played before and after each rehearsal, to see what was forgotten; 0: none"""


def no_demonstrations(_: Collector) -> Sequence[Trajectory]:
    """Imitate nothing beside what the rounds make."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Collect with the policy, build a data set of it, train on that, again: ``Rounds(collect=…, build=…, update=…)``.

    A step of the run is a round.
    """

    collect: Collect
    build: Callable[[Sequence[Group]], PipelineResult | Sequence[Pair]]
    """episodes of the round → what is imitated (a `Pipeline`), or pairs of which one side is preferred"""
    update: Update
    choose: Choose | None = None
    """picks of the pairs that were built those that are trained on, by what they would change; None: all of them"""
    steps: OptimizerSteps | None = None
    """optimizer steps of each training; None: epochs and minibatches of `update`, or of the configuration"""
    later: Sequence[Improve] = ()
    """trainings that follow that of `build` on the same episodes, each from where the one before it ended (ReST)"""
    base: Callable[[Collector], Sequence[Trajectory]] = no_demonstrations
    """episodes that every training imitates beside what was built (AgentEvol); called once, also by a resumed run"""
    merges_base: bool = True
    """whether `base` is imitated in every training; else only before the first round, without a warm start"""
    memory: int | None = 1
    """rounds whose data is trained on, the newest ones, this one included; None: all of them"""
    starts_over: bool = False
    """whether each round trains from the starting weights (STaR, AgentEvol)"""
    has_warm_start: bool = True
    """whether the demonstrations are imitated before the run starts; else its starting weights are those of the model,
    and `base` is imitated once before the first round"""
    needs: Needs = Needs()
    reward: Change = same_groups
    state: State = field(default_factory=Folds)
    measure: Measure = no_metrics

    @property
    def improves(self) -> tuple[Improve, ...]:
        """The trainings of a round, in order."""
        return (Improve(build=self.build), *self.later)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What could be said in a turn of a recorded episode: ``Way(episode=t, weight=0.5)``."""

    episode: Trajectory
    """the turns before, and this one as its last; it was not carried out"""
    weight: float
    """how much it counts among the ways of its turn, which add up to 1"""


Ways = Sequence[Sequence[Sequence[Way]]]
"""[episode][turn] → ways"""


class Consultation(Protocol):
    """What a method on the replay loop asks the policies about recorded episodes; only what is asked is computed."""

    @property
    def step(self) -> int:
        """The step of the run."""
        ...

    @property
    def max_length(self) -> int:
        """Tokens of the longest stream that the policies can read."""
        ...

    def token_values(self, episodes: Sequence[Trajectory], *, by: str) -> Critic:
        """Return the values of the sampled tokens by the policy `by`, which has a value head."""
        ...

    def turn_values(self, episodes: Sequence[Trajectory], *, by: str) -> TurnValues:
        """Return V before and Q after each turn by the policy `by`, which has a value head."""
        ...

    def last_values(self, episodes: Sequence[Trajectory], *, by: str) -> list[float]:
        """Return Q after the last turn of each of `episodes` by the policy `by`, as `turn_values` has it."""
        ...

    def logprobs(self, episodes: Sequence[Trajectory], *, by: str = MAIN) -> TokenArrays:
        """Return the log-probs of the sampled tokens by the policy `by`: [episode][turn] → [tokens]."""
        ...

    def entropies(self, episodes: Sequence[Trajectory], *, by: str = MAIN) -> TokenArrays:
        """Return the entropy of the policy `by` where each token was sampled: [episode][turn] → [tokens]."""
        ...

    def ways(self, episodes: Sequence[Trajectory], *, size: int = 1, by: str = MAIN) -> Ways:
        """Return `size` ways, each of weight 1/size, that the policy `by` as it is says in each turn of `episodes`.

        Nothing is carried out: the environment takes no step. In a step of the run they are the same whenever they are
        asked for, until that policy has learned; those of a policy that rests are the same in the whole run.
        """
        ...

    def legal_ways(self, episodes: Sequence[Trajectory]) -> Ways:
        """Return every legal action as a way in each turn of `episodes`, its weight its probability among them.

        The environment lists its legal actions (``Needs(legal_actions=True)``) and the agent writes them.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayBuffer:
    """Episodes that are learned from more than once: ``ReplayBuffer(capacity=512, batch_size=32)``.

    Which of them an update draws depends on the run's seed, the step and the update alone, and on the weights where
    there are priorities: a resumed run draws the same.
    """

    capacity: int = 1024
    """episodes; the oldest leave first"""
    batch_size: int = 32
    """episodes of one update, all different"""
    fresh_share: float = 0.0
    """share of a batch that comes from the newest step"""
    min_size: int = 1
    """episodes before the first update"""
    priority: Callable[[Sequence[Trajectory], Consultation], Sequence[float]] | None = None
    """(all episodes, consultation) → how likely each is drawn, in proportion; 0: not at all. It is asked once in every
    step, before its updates; None: all alike"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What one update learns, in token streams: ``Lesson(samples=turn_value_samples(…), metrics={…})``."""

    samples: Sequence[Sample]
    metrics: Mapping[str, float] = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticUpdate:
    """One kind of update on episodes from the buffer: ``CriticUpdate(policy="critic", num_updates=4, …)``."""

    policy: str
    """the policy that learns"""
    target: Callable[[Sequence[Group], Consultation], Credit | Lesson]
    """(episodes of the batch, consultation) → advantages and returns, or the streams that hold them"""
    update: Update
    num_updates: int | Callable[[int], int] = 1
    """updates of a step, or of the step of that number; 0: none, as where the critics learn first"""
    batch_size: int | None = None
    """episodes of one update; None: as the buffer says"""
    rate: float = 1.0
    """factor on the learning rate"""
    anew: int = 0
    """step before whose updates the value head starts anew, on what it reads of the buffer standardized; 0: never"""

    body: str = ""
    """critic, before this one in `Replay.updates`, whose features it takes over as its head starts anew"""

    def count(self, step: int) -> int:
        """Return the updates of `step`."""
        return self.num_updates if isinstance(self.num_updates, int) else self.num_updates(step)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCritic:
    """The critic whose quality every step is measured, on its new episodes before it learns of them.

    Where a step collects none, on a batch of the buffer.
    """

    values: Callable[[Sequence[Trajectory], Consultation], TurnValues]
    """(episodes, consultation) → what it says of their turns"""
    target: Callable[[Sequence[Trajectory], Consultation], TurnValues] | None = None
    """what its target network says; None: itself"""
    discount: float = 1.0
    """γ per turn"""
    has_q: bool = True
    """whether it says anything of a turn once it is taken"""
    is_read: Callable[[Trajectory], bool] = lambda _: True
    """whether it says anything of an episode: a critic of one seat reads those of that seat alone"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Learn from a buffer of earlier episodes: critics first, then the policy.

    Each step collects, then makes the updates of `updates` in order; policies that follow another (target networks)
    move after every update of it. The buffer is what the journal says was collected: a resumed run rebuilds it.
    """

    collect: Collect
    buffer: ReplayBuffer
    updates: Sequence[CriticUpdate]
    critic: WatchedCritic | None = None
    phase: int = 1
    """steps after which a reference that is renewed (`Needs.renews_reference`) becomes the policy as it is"""
    log: str = ""
    """a run whose training episodes fill the buffer before the first step; they are copied into the journal"""
    needs: Needs = Needs()
    reward: Change = same_groups
    state: State = field(default_factory=Folds)
    measure: Measure = no_metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrastive:
    """Train an embedder that finds the document of a query: ``Contrastive(corpus=…, batch_size=64, hard=3)`` (DARE).

    There is no policy: a step is one batch of pairs, and an evaluation ranks all documents for held-out ones' queries.
    """

    corpus: Callable[[Environment], Corpus]
    """the environment of the run → what is found in it"""
    batch_size: int = 64
    """pairs of a step"""
    hard: int = 3
    """of each document that is drawn, those most like it that stand in the batch with it"""
    temperature: float = 0.05
    """τ of InfoNCE"""
    size: int = 64
    """numbers of an embedding"""
    queries: int = 4
    """of each held-out document in an evaluation"""
    ranks: str = "trained"
    """what tools are chosen by where evaluations play: trained, untrained or bm25"""
    needs: Needs = Needs()


Method = OnPolicy | Offline | Rounds | Replay | Contrastive


def hold(method: OnPolicy, *, kl_coef: float, entropy_coef: float) -> OnPolicy:
    """Return `method` with the KL (k3) to its start and the entropy in the loss; with both 0 it stays as it is.

    Both also learn from groups without a difference, which the method leaves out otherwise.
    """
    if not kl_coef and not entropy_coef:
        return method
    from quintain.losses.compose import combine
    from quintain.losses.entropy import entropy_bonus
    from quintain.losses.kl import kl_penalty

    terms = [(kl_penalty("k3"), kl_coef)] if kl_coef else []
    terms += [(entropy_bonus(), entropy_coef)] if entropy_coef else []
    update = replace(
        method.update,
        loss=combine((method.update.loss, 1.0), *terms),
        keeps_zeros=True,
        has_reference=kl_coef > 0,
    )
    return replace(method, update=update, needs=replace(method.needs, reference=kl_coef > 0))


def grouped(
    tasks: int,
    size: int,
    *,
    max_turns: Callable[[int], int | None] = lambda _: None,
    agent: Callable[[Agent], Agent] | None = None,
) -> Collect:
    """Return the collection of `size` episodes of each of `tasks` tasks, of at most `max_turns`(step) turns.

    Evaluations keep the environment's own limit and the plain agent. An episode that this limit cuts is truncated, not
    terminated.
    """
    return lambda collector, step: collector.sample(
        step,
        collector.tasks(step, tasks),
        size=size,
        max_turns=max_turns(step),
        agent=agent,
        later_turns=max_turns,
    )


def nothing_new(_: Collector, __: int) -> list[Group]:
    """Collect no episode: a method that learns from a log alone."""
    return []


def differing(tasks: int, size: int, *, attempts: int) -> Collect:
    """Return the collection of groups until `tasks` of them have different outcomes, in up to `attempts` draws.

    Dynamic sampling (DAPO, arXiv 2503.14476). All groups are returned and recorded, equal ones too; the credit
    leaves those without a difference at 0. What is sampled in excess of `tasks` differing groups is kept.
    """

    def collect(collector: Collector, step: int) -> list[Group]:
        drawn = collector.tasks(step, tasks * attempts)
        groups: list[Group] = []
        for attempt in range(attempts):
            groups += collector.sample(step, drawn[attempt * tasks : (attempt + 1) * tasks], size=size)
            if sum(map(differs, groups)) >= tasks:
                break
        return groups

    return collect


def differs(group: Group) -> bool:
    """Return whether the outcomes of `group` are not all the same, for one of its seats; those of no episode are."""
    return any(not is_constant([outcome_of(t) for t in part.scored]) for part in comparable_groups([group]))
