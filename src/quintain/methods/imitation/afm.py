"""Chain-of-Agents, AFM (arXiv 2508.13167): one model imitates a team's run, then learns by its outcome.

A team plays: a solver suggests, a checker scores from 1 to 5, below 3 a planner asks for another suggestion, else it is
done. What the roles said stands one after the other in one turn, so one model learns to be the team. Of the episodes
stay: correct, in order (no role out of turn, no score missing), and complex (at least `min_interactions`); those in
which a check sent the team back are imitated `corrections` times. Loss is on the model's own tokens. Then DAPO: groups
that agree are drawn again, the ratio is clipped to .8 … 1.28, no KL, and nothing is paid but the outcome. A checker
that does not answer is asked again, and its silence is no score: such a transcript is not in order.

Differences to the paper: the team is scripted around the environment's expert, where the paper runs OAgents; tool
agents are the calls in the role `action`; reflections are the plans. Right is the environment's success, where the
paper asks a judge. Measured on sums, where the paper has search on the web, questions of several hops and code.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from quintain.agents.roles import INSTRUCTIONS, write_words
from quintain.config.ranges import NonNegativeInt, PositiveInt, Share
from quintain.credit.group import group_relative
from quintain.credit.outcome import outcome_return
from quintain.data import stages
from quintain.data.pipeline import Pipeline, check_stage, remade
from quintain.environments.noisy import NoisyExpert, noisy
from quintain.environments.protocol import Environment, Expert
from quintain.learning.train_config import ClipHigherConfig, ColdStart
from quintain.learning.update import Update
from quintain.losses.imitation import imitate_weighted
from quintain.losses.policy import clip_ratio
from quintain.methods.imitation.supervised import choose_trajectories
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs, sample_until_mixed
from quintain.rewards.conduct import success
from quintain.rewards.terms import apply_all
from quintain.text.parse import UnreadableError
from quintain.text.roles import (
    ACT,
    CHECK,
    ENOUGH,
    PLAN,
    SUGGEST,
    THINK,
    Activation,
    find_broken_rule,
    read_roles,
    score_of,
    write_roles,
)
from quintain.types import Action, Observation, Trajectory

Check = Callable[[Environment, Action, Random], int | None]
"""(environment, what is suggested, chance) → a score from 1 to 5; None where the checker does not answer"""
Decode = Callable[[Sequence[int]], str]
REPEATS = 50
"""Times that a new tokenizer reads each mark."""
ALONE = Pipeline(stages.keep_solved(name="correct"))
"""What is imitated of a solver without a team."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ClipHigherConfig):
    """Configuration of Chain-of-Agents."""

    renamed: ClassVar[Mapping[str, str]] = {
        "attempts": "max_draws",
        "checker_mistakes": "checker_noise",
        "solver_mistakes": "solver_noise",
        "least_interactions": "min_interactions",
        "most_rounds": "max_rounds",
    }
    """earlier names of options"""

    environment: str = "sums?revisions=0&digits=1"
    agent: str = "roles"
    demonstrations: NonNegativeInt | str | None = 200
    """Tasks that the team plays; or a file, folder, run or data set of conversations; 0 for RL alone."""
    team: bool = True
    """Whether a team plays; false: its solver alone, who thinks and acts, unchecked: what a team is compared with."""
    solver_noise: Share = 0.5
    """Share of the solver's suggestions that are not the expert's."""
    checker_noise: Share = 0.15
    """Share of the checker's scores that are of the wrong side."""
    max_rounds: PositiveInt = 3
    """Suggestions of a turn, after which the team does what it has."""
    min_interactions: PositiveInt = 5
    """Roles that must speak in an episode, the acting one included."""
    corrections: PositiveInt = 2
    """Times that an episode is imitated in which a check sent the team back."""
    reinforced: bool = True
    """Whether RL follows; false: it imitates those of its own episodes that succeed, as if imitation went on."""
    max_draws: PositiveInt = 3
    """Draws of tasks until enough groups differ."""
    num_minibatches: int = 4


def method(config: Config) -> OnPolicy:
    """Return Chain-of-Agents as `config` describes it."""
    team = Team(
        solve=noisy(config.solver_noise),
        check=expert_check(config.checker_noise),
        max_rounds=config.max_rounds,
    )
    is_told = isinstance(config.demonstrations, str)

    def make(decode: Decode) -> Pipeline:
        return pipeline(decode, config.min_interactions, config.corrections) if config.team else ALONE

    return OnPolicy(
        cold_start=ColdStart(
            choose=lambda shown, decode: choose_trajectories(shown, make(decode), "imitating a team"),
            teachers=(team.act if config.team else team.act_alone,),
            texts=team.texts() if config.agent == "roles" else (),
        ),
        collect=sample_until_mixed(config.tasks, config.group_size, attempts=config.max_draws),
        reward=lambda groups: apply_all(groups, (success(),)),
        credit=lambda groups, _: group_relative(groups) if config.reinforced else outcome_return(groups),
        update=Update(loss=clip_ratio(0.2, config.clip_high) if config.reinforced else imitate_weighted()),
        needs=Needs(expert=not is_told and config.demonstrations != 0),
    )


def expert_check(errs: float) -> Check:
    """Return the checker that compares with the environment's expert: 4 or 5 where they agree, 1 or 2 where not.

    In the share `errs` of cases its score is of the other side.
    """

    def check(environment: Environment, suggested: Action, rng: Random) -> int | None:
        if not isinstance(environment, Expert):
            return None
        is_right = suggested == environment.expert_action()
        return rng.choice((4, 5) if is_right is not (rng.random() < errs) else (1, 2))

    return check


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Several agents who act together: ``Team(solve=noisy(0.5), check=expert_check(0.15))``; `act` is a teacher."""

    solve: NoisyExpert
    check: Check
    max_rounds: int = 3
    retries: int = 2
    """times that a checker who does not answer is asked again"""
    words: Sequence[str] = field(default=("I look at it.", "Let me see."))
    """what is thought before a suggestion; one of them, by chance"""

    def run(self, environment: Environment, rng: Random, seen: Sequence[Observation]) -> list[Activation]:
        """Return what the roles say before and as the team acts; without a score where the checker stays silent."""
        found: list[Activation] = []
        for number in range(self.max_rounds):
            suggested = self.solve(environment, rng, seen)
            text = write_words(suggested)
            found += [Activation(THINK, rng.choice(self.words)), Activation(SUGGEST, text)]
            scores = (self.check(environment, suggested, rng) for _ in range(1 + self.retries))
            score = next((score for score in scores if score is not None), None)
            if score is not None:
                found.append(Activation(CHECK, str(score)))
            if score is None or score >= ENOUGH or number == self.max_rounds - 1:
                found.append(Activation(ACT, text))
                break
            found.append(Activation(PLAN, find_doubts(text)))
        return found

    def act(self, environment: Environment, rng: Random, seen: Sequence[Observation]) -> Action:
        """Return what the team does, as one transcript."""
        return Action(text=write_roles(self.run(environment, rng, seen)))

    def act_alone(self, environment: Environment, rng: Random, seen: Sequence[Observation]) -> Action:
        """Return what the solver alone thinks and does, as a transcript."""
        text = write_words(self.solve(environment, rng, seen))
        return Action(text=write_roles([Activation(THINK, rng.choice(self.words)), Activation(ACT, text)]))

    def texts(self) -> list[str]:
        """Return what the harness tells and the team says in any case, so that a new tokenizer knows the marks."""
        found = [INSTRUCTIONS] * REPEATS
        for number in range(REPEATS):
            score = str(number % 5 + 1)
            words = self.words[number % len(self.words)]
            parts = [
                (THINK, words),
                (SUGGEST, score),
                (CHECK, score),
                (PLAN, find_doubts(score)),
                (ACT, score),
            ]
            found.append(write_roles([Activation(*part) for part in parts]))
        return found


def find_doubts(text: str) -> str:
    """Return what the planner says of what is not done."""
    return f"{text} may be wrong, so once more."


def pipeline(decode: Decode, least: int, corrections: int) -> Pipeline:
    """Return correct → in order → complex → corrected ones several times."""
    return Pipeline(
        stages.keep_solved(name="correct"),
        check_stage(
            "in_order", "has a turn whose roles break a rule", lambda e: is_in_order(e.trajectory, decode)
        ),
        check_stage(
            "complex",
            f"has fewer than {least} interactions",
            lambda e: sum(map(len, transcripts(e.trajectory, decode))) >= least,
        ),
        remade(
            "corrected",
            f"is imitated {corrections} times where a check sent the team back",
            lambda e: [e] * (corrections if is_corrected(e.trajectory, decode) else 1),
        ),
    )


def transcripts(trajectory: Trajectory, decode: Decode) -> list[tuple[Activation, ...]]:
    """Return what the roles said in each turn; nothing for a turn that cannot be read."""
    found: list[tuple[Activation, ...]] = []
    for turn in trajectory.turns:
        try:
            found.append(read_roles(decode(turn.completion.token_ids)))
        except UnreadableError:
            found.append(())
    return found


def is_in_order(trajectory: Trajectory, decode: Decode) -> bool:
    """Return whether the roles of every turn come in their order."""
    return not any(map(find_broken_rule, transcripts(trajectory, decode)))


def is_corrected(trajectory: Trajectory, decode: Decode) -> bool:
    """Return whether a check of any turn was below what is enough."""
    said_all = [activation for turn in transcripts(trajectory, decode) for activation in turn]
    scores = [score_of(content) for role, content in said_all if role == CHECK]
    return any(score is not None and score < ENOUGH for score in scores)
