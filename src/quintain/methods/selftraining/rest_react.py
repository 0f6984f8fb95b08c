"""ReST meets ReAct (arXiv 2312.10003): imitates the sample of every step that a ranker likes.

Grow: one episode for each question; every step of it is sampled `samples` times. Improve: of each step the sample that
ranks first is an example of its own, with all that stood before it as context; training begins again from the starting
policy. No outcome is read. Ranked by `grounding`, an answer is good whose number stands beside the key that is asked
for in what was read, and reading on is good as long as none does; by `perplexity`, what the policy finds likeliest.

Differences to the paper: the ranker is a rule over text, where the paper prompts a language model (or, while it
collects, takes the least perplexed sample, by which episodes here are not steered); grounding reads facts written
``KEY = NUMBER``; what small models are distilled from is a run of this one, as conversations for `sft`. Measured on
`stream`; the paper has four sets of questions and web search.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from quintain.config.ranges import PositiveInt
from quintain.data.pipeline import Pipeline, Stage
from quintain.data.stages import sampling_perplexity
from quintain.errors import ConfigError, DataError, UsageError
from quintain.learning.train_config import RoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector, Needs
from quintain.methods.rl.parts.contexts import single
from quintain.rollout.replay import prefixes_of
from quintain.types import Example, Group, Trajectory, flatten_scored

Ranker = Callable[[Trajectory], float]
"""a sample of one step, its context as prompt → how good it is; no outcome is read"""
ASKED = re.compile(r"(\w+)\?")
FACT = re.compile(r"\b\w+ = -?\d+")
SAID = re.compile(r"\s*answer\s+(-?\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RoundsConfig):
    """Configuration of ReST meets ReAct."""

    environment: str = "stream"
    tasks: PositiveInt = 64
    """Questions of a round."""
    samples: PositiveInt = 4
    """Samples of a step that are ranked."""
    ranker: Literal["grounding", "perplexity"] = "grounding"
    """What ranks samples."""
    starts_over: bool = True
    """Train every round from the starting policy; else from that of the round before."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        RoundsConfig.check(self)
        if self.samples < 2:
            raise ConfigError(
                f"samples: got {self.samples}, of which none could be ranked first; give 2 or more"
            )


def method(config: Config) -> Rounds:
    """Return ReST meets ReAct as `config` describes it."""
    decoders: list[Callable[[Sequence[int]], str]] = []

    def collect(collector: Collector, step: int) -> list[Group]:
        decoders[:] = [collector.decode]
        played = collector.sample(step, collector.tasks(step, config.tasks), size=1)
        found = steps_of(collector, step, flatten_scored(played), config.samples)
        read = [collector.decode(t.turns[0].prompt_ids) for t in flatten_scored(found)]
        if config.ranker == "grounding" and read and not any(map(FACT.search, read)):
            raise DataError(
                f"ranker grounding: got {len(read)} samples, and nothing that was read before them is written as KEY = "
                "NUMBER, so that all rank alike; take an environment that writes facts so, such as stream, or ranker "
                "perplexity"
            )
        return found

    def rank(trajectory: Trajectory) -> float:
        if config.ranker == "perplexity":
            return -sampling_perplexity(trajectory)
        if not decoders:
            raise UsageError(
                "ranking samples: got none that was collected in this process; begin the round anew"
            )
        return grounding(decoders[0](trajectory.turns[0].prompt_ids), trajectory.turns[0].action.text)

    return Rounds(
        collect=collect,
        build=Pipeline(keep_first_ranked(rank)),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        starts_over=config.starts_over,
        needs=Needs(branches=True),
    )


def steps_of(collector: Collector, step: int, episodes: Sequence[Trajectory], samples: int) -> list[Group]:
    """Return `samples` samples of every step of `episodes`, each an episode of one turn; a group is a step."""
    prefixes = prefixes_of(collector.replay_episodes(episodes))
    found: list[Group] = []
    for length in sorted({len(prefix.turns) for prefix in prefixes}):
        same = [
            replace(p, task=replace(p.task, id=f"{p.task.id}@{length}"))
            for p in prefixes
            if len(p.turns) == length
        ]
        for group in collector.continue_from(step, same, size=samples, max_turns=length + 1):
            found.append(replace(group, trajectories=tuple(single(t, length) for t in group.trajectories)))
    return found


def keep_first_ranked(rank: Ranker) -> Stage:
    """Return the stage that keeps of each step the sample that ranks first; of equal ones the first."""

    def apply(examples: Sequence[Example]) -> list[Example]:
        best: dict[str, tuple[float, Example]] = {}
        for example in examples:
            key, own = example.trajectory.task.id, rank(example.trajectory)
            if key not in best or own > best[key][0]:
                best[key] = (own, example)
        kept = {id(example) for _, example in best.values()}
        return [example for example in examples if id(example) in kept]

    return Stage(name="ranked_first", says="ranks behind another sample of its step", apply=apply)


def grounding(read: str, said: str) -> float:
    """Return 1 for an answer that what was `read` supports, or for reading on where nothing does; else 0.

    Supported is the number that stands beside the key of the last question, the last time that it does. Text alone is
    read: no outcome, and no answer of the environment.
    """
    asked = ASKED.findall(read)
    told: list[str] = re.findall(rf"\b{asked[-1]} = (-?\d+)", read) if asked else []
    answer = SAID.match(said)
    if answer is None:
        return float(not told and said.strip().lower() == "read")
    return float(bool(told) and int(answer[1]) == int(told[-1]))
