"""WebDancer (arXiv 2505.22648): imitates the best of many tries, then learns by outcome and form.

R = .1·format + .9·answer.

Four stages. Questions are made harder, a thing in them becoming a description whose answer it is
(`hopqa?rounds=2`). A teacher tries each question `teacher_episodes` times. Three filters follow: valid (every turn
could be read and carried out, and the whole is not too long), correct, and of quality (nothing is done twice to no
end). What is left is imitated on the agent's tokens alone. Then DAPO: groups of equal outcome are drawn again, the
ratio is clipped to .8 … 1.28, every token of a step counts the same, advantages are normalised by group, and there
is no KL.

Differences to the paper: the teacher is the environment's expert, who errs, where the paper has language models with
short and long chains of thought; right is the environment's success, of quality a rule, both of which the paper asks a
judge; easy-to-hard questions alone, without those made of crawled pages; groups are drawn again by the environment's
outcome, without the format; what is sampled in excess is kept. Measured on `hopqa`; the paper has GAIA and WebWalkerQA.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from quintain.config.ranges import NonNegativeInt, PositiveInt, Share
from quintain.credit.group import group_relative
from quintain.data import stages
from quintain.data.pipeline import Pipeline, check_stage
from quintain.environments.noisy import noisy
from quintain.learning.train_config import ClipHigherConfig, ColdStart
from quintain.learning.update import Update
from quintain.losses.policy import clip_ratio
from quintain.methods.imitation.supervised import choose_trajectories
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Needs, differs, sample_until_mixed
from quintain.rewards.conduct import success
from quintain.rewards.terms import Term, apply_all
from quintain.types import Group, Trajectory, as_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ClipHigherConfig):
    """Configuration of WebDancer."""

    renamed: ClassVar[Mapping[str, str]] = {
        "tries": "teacher_episodes",
        "attempts": "max_draws",
        "teacher_mistakes": "teacher_noise",
    }
    """earlier names of options"""

    environment: str = "hopqa?hops=1&closed=0&rounds=1"
    demonstrations: NonNegativeInt | str | None = 60
    """Questions that the teacher tries; or a file, folder, run or data set of conversations; 0 for RL alone."""
    teacher_noise: Share = 0.3
    """Share of the teacher's turns in which it does something else than the expert."""
    teacher_episodes: PositiveInt = 5
    """Times that the teacher tries a question."""
    longest: PositiveInt = 4096
    """Tokens of an episode; a longer one is not valid."""
    max_draws: PositiveInt = 3
    """Draws of tasks until enough groups differ."""
    format_weight: Share = 0.1
    """What it is worth that every turn could be read; a right answer is worth the rest of 1."""
    num_minibatches: int = 4


def method(config: Config) -> OnPolicy:
    """Return WebDancer as `config` describes it."""
    is_told = isinstance(config.demonstrations, str)
    terms = rewards(config.format_weight)
    return OnPolicy(
        cold_start=ColdStart(
            choose=lambda shown, _: choose_trajectories(
                shown, pipeline(config.longest), "imitating the best of many tries"
            ),
            teachers=(noisy(config.teacher_noise),) * config.teacher_episodes,
        ),
        collect=sample_until_mixed(config.tasks, config.group_size, attempts=config.max_draws),
        reward=lambda groups: apply_all(groups, terms),
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=clip_ratio(0.2, config.clip_high)),
        needs=Needs(expert=not is_told and config.demonstrations != 0),
        measure=lambda groups, _: measure_draws(groups, config.tasks),
    )


def pipeline(longest: int) -> Pipeline:
    """Return valid → short enough → correct → of quality."""
    return Pipeline(
        check_stage(
            "valid",
            "has a turn that could not be read or carried out",
            lambda example: all(t.is_valid and t.action.error is None for t in example.trajectory.turns),
        ),
        stages.within(longest),
        stages.keep_solved(name="correct"),
        check_stage(
            "quality", "does something twice to no end", lambda example: not num_repeats(example.trajectory)
        ),
    )


def num_repeats(trajectory: Trajectory) -> int:
    """Count the turns of `trajectory` that do what an earlier one did, in the same state or with the same result.

    To read on twice, to gather twice or to go forward twice is no repetition; to ask twice what was answered is. States
    are compared by key where there is one, else by what was seen; small and capital letters are the same.
    """
    seen = [
        as_text(part) for part in (*(t.observation for t in trajectory.turns), trajectory.final_observation)
    ]
    known: set[tuple[str, ...]] = set()
    num = 0
    for turn, before, after in zip(trajectory.turns, seen, seen[1:], strict=False):
        calls = "; ".join(f"{call.name} {call.arguments}" for call in turn.action.tool_calls)
        done = f"{turn.action.text.strip()} {calls}".lower()
        keys = {("state", turn.state_key or before, done)}
        keys |= {("result", after, done)} if turn.action.tool_calls else set()
        num += bool(keys & known)
        known |= keys
    return num


def rewards(format_weight: float) -> tuple[Term, Term]:
    """Return what is paid: all of the format where every turn could be read, and the answer."""
    readable = Term(
        name="format",
        measure=lambda t: float(all(turn.action.error is None for turn in t.turns)),
        weight=format_weight,
    )
    return readable, success(1 - format_weight)


def measure_draws(groups: Sequence[Group], tasks: int) -> Mapping[str, float]:
    """Return the share of groups whose outcomes differ, and how many are missing at the most draws."""
    found = sum(map(differs, groups))
    return {
        "web_dancer/differing": found / max(len(groups), 1),
        "web_dancer/missing": float(max(tasks - found, 0)),
    }
