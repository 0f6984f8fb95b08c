"""CodeAct (arXiv 2402.01030): imitates code that errs first and is then mended, among general conversations.

Of episodes that act by Python those are imitated that solved their task, in which something failed first and worked in
a later turn: code raised an error, an answer was wrong, or no code could be read. Who never erred shows nothing of how
to go on from an error, and is left out, as is who took more turns than are allowed. Turns and answers are counted down
in what is seen (`code?turns=5&proposals=2`). Every sample of a step is one of these episodes with the probability that
they have in the paper, 7,139 of 78,385, else one of the conversations of `corpus`; without a corpus they are all.

Differences to the paper: the errors are a script's, which writes the expert's code with a typical mistake in
`error_rate` of its turns (a misspelt name, an open bracket, a variable that nobody bound) and then rightly, where the
paper has GPT-3.5, GPT-4 and Claude err by themselves; episodes of others, as a file or a run, are taken as they are. A
wrong answer counts as an error. There is no general data unless a corpus is named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from quintain.agents.catalog import check
from quintain.agents.code_world import WRONG
from quintain.config.ranges import PositiveInt, Share
from quintain.data.mixtures import measure_shares, odds
from quintain.data.pipeline import Pipeline, PipelineResult, check_stage
from quintain.environments.noisy import NoisyExpert
from quintain.environments.protocol import Environment, Expert
from quintain.errors import ConfigError
from quintain.learning.train_config import ImitationConfig
from quintain.methods.imitation.supervised import choose_trajectories, imitate_data
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector
from quintain.types import Action, Example, Observation, Trajectory, as_text

TRACE = "Traceback (most recent call last)"
AGENT, GENERAL = "agent", "general"
PAPER = round(7_139 / (7_139 + 71_246), 4)
"""Share of the paper's conversations that act."""
ERROR_RATE = 0.3
"""Share of turns that a script spoils, unless another is asked for."""
CALLED = re.compile(r"(?<=print\()(\w+)\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImitationConfig):
    """Configuration of CodeAct."""

    environment: str = "calc?names=1&steps=1&digits=1&checks=0"
    agent: str = "code?turns=5&proposals=2"
    """Harness, which must write code."""
    demonstrations: int | str | None = 600
    """Episodes of the expert in code, of which those are imitated that err and mend it; or a file, folder or run."""
    error_rate: Share = ERROR_RATE
    """Share of the expert's turns whose code is first written with a mistake; not for the episodes of a file."""
    turns: PositiveInt = 5
    """Most turns of an episode that is imitated."""
    corpus: str = ""
    """General conversations: a file, folder or run of them, with tools of their own or none; empty: none."""
    agent_fraction: Share = PAPER
    """The probability that a sample acts, where there is a corpus."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ImitationConfig.check(self)
        if check(self.agent)[-1].name != "code":
            raise ConfigError(f"agent: got {self.agent}, which writes no code; end it with code")
        if self.demonstrations == 0:
            raise ConfigError("demonstrations: got 0, which leaves nothing to imitate; give 1 or more")
        if isinstance(self.demonstrations, str) and self.error_rate != ERROR_RATE:
            raise ConfigError(
                f"error_rate: got {self.error_rate} with the episodes of {self.demonstrations}, in which nobody is "
                "made to err; leave it out, or give a number of demonstrations"
            )


def method(config: Config) -> Offline:
    """Return CodeAct as `config` describes it."""

    def data(collector: Collector) -> PipelineResult:
        teachers = () if isinstance(config.demonstrations, str) else (make_author(config.error_rate),)
        chats = collector.corpus(is_apart=True) if config.corpus else []
        shown = [*collector.demonstrations(*teachers), *map(mark_general, chats)]
        cure = "raise demonstrations or error_rate, or give episodes in which somebody erred"
        return choose_trajectories(
            shown, pipeline(config.turns), "imitating code that is mended", {"mended": cure}
        )

    return imitate_data(
        config,
        data,
        batch_size=config.batch_size,
        odds=(lambda examples: mix(examples, config.agent_fraction)) if config.corpus else None,
        metrics=lambda made: measure_acting([e for e in made if isinstance(e, Example)], config),
    )


def pipeline(turns: int) -> Pipeline:
    """Return solved → at most `turns` turns → something failed and was mended; general conversations pass."""
    return Pipeline(
        check_stage(
            "solved", "did not solve its task", lambda e: part_of(e) == GENERAL or e.trajectory.is_success
        ),
        check_stage(
            "short",
            f"took more than {turns} turns",
            lambda e: part_of(e) == GENERAL or sum(not t.is_internal for t in e.trajectory.turns) <= turns,
        ),
        check_stage(
            "mended",
            "never failed, or went on to nothing that worked",
            lambda e: part_of(e) == GENERAL or is_mended(e.trajectory),
        ),
    )


def find_failures(trajectory: Trajectory) -> list[bool]:
    """Return of each turn in which something was done whether it failed, by what came of it and by what was told then.

    Of the last turn nobody was told.
    """
    turns = [turn for turn in trajectory.turns if not turn.is_internal]
    shown = [*(as_text(turn.observation) for turn in turns), ""]
    return [
        not turn.is_valid or turn.action.error is not None or TRACE in shown[k] or WRONG in shown[k]
        for k, turn in enumerate(turns, 1)
    ]


def is_mended(trajectory: Trajectory) -> bool:
    """Whether a turn failed and a later one did not."""
    failed = find_failures(trajectory)
    return any(failed) and not all(failed[failed.index(True) :])


def make_author(error_rate: float) -> NoisyExpert:
    """Return who writes the expert's code, in the share `error_rate` of the turns with a mistake that stops it."""

    def act(environment: Environment, rng: Random, _seen: Sequence[Observation]) -> Action:
        assert isinstance(environment, Expert), "the method needs an expert"
        action = environment.expert_action()
        errs, drawn = rng.random() < error_rate, Random(rng.getrandbits(62))
        return replace(action, text=break_code(action.text, drawn)) if errs else action

    return act


def break_code(code: str, rng: Random) -> str:
    """Return `code` with a mistake by which nothing of it is done: ``print(add(a=1, b=2))`` → ``print(ad(a=1, b=2))``.

    A name lacks a letter, a bracket is left open, or a variable is used that nobody has bound.
    """
    found = CALLED.search(code)
    ways = [code.rstrip()[:-1], f"print(last)\n{code}"]
    if found is not None:
        name, place = found[1], rng.randrange(len(found[1]))
        shorter = f"{name[:place]}{name[place + 1 :]}" or "_"
        ways.append(f"{code[: found.start()]}{shorter}{code[found.end(1) :]}")
    return rng.choice(ways)


def mark_general(chat: Trajectory) -> Trajectory:
    """Return a conversation of the corpus as general data."""
    return replace(chat, task=replace(chat.task, environment=GENERAL))


def part_of(example: Example) -> str:
    """Return whether `example` acts or is general."""
    return GENERAL if example.trajectory.task.environment == GENERAL else AGENT


def mix(examples: Sequence[Example], fraction: float) -> list[float]:
    """Return how likely each of `examples` is to be drawn, so that `fraction` of the samples act."""
    return odds(examples, part_of, {AGENT: fraction, GENERAL: 1 - fraction})


def measure_acting(examples: Sequence[Example], config: Config) -> dict[str, float]:
    """Return the shares of samples and of tokens that act, as they are drawn."""
    drawn = mix(examples, config.agent_fraction) if config.corpus else [1 / len(examples)] * len(examples)
    samples, tokens = measure_shares(examples, part_of, drawn).get(AGENT, (0.0, 0.0))
    return {"code_act/samples": samples, "code_act/tokens": tokens}
