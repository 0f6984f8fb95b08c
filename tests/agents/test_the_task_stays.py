"""The task is in every prompt, through every wrapper of a harness and in every built-in environment."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import cycle

import pytest

from quintain.agents.catalog import WRAPPERS, build
from quintain.agents.context import REMEMBER
from quintain.agents.deliberation import TASK
from quintain.agents.refined import ROLE
from quintain.data.searched import split_head
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.boundary import has_expert
from quintain.environments.catalog import ADAPTERS, CATALOG, find
from quintain.environments.noisy import noisy
from quintain.rollout.collect import Rollout
from quintain.rollout.views import seats_of
from quintain.text.chat import Chat
from quintain.types import Failure, Trajectory, as_text
from quintain.warm_start.start import fumble_action

BUILT_IN = sorted(set(CATALOG) - set(ADAPTERS))
SOONEST = {
    "capped": "capped?calls=99",
    "pivotal": "pivotal?turns=1",
    "plan": "plan?replan_every=1",
    "summary": "summary?every=1",
    "window": "window?turns=1",
}
"""Wrappers with options by which they forget as soon as they can."""
NEED_MORE = {"again", "backoff", "chunks", "ordered", "poact"}
"""Wrappers that need the name of a tool, a policy file, pages of the world or code; they forget nothing but pages."""
ALONE = [SOONEST.get(name, name) for name in sorted(WRAPPERS.keys() - NEED_MORE)]
NESTED = [
    "window?turns=0",
    "memory+window?turns=1",
    "plan?replan_every=1+memory",
    "plan?replan_every=2+summary?every=1",
    "rci+window?turns=1",
    "simplified+pivotal?turns=1",
    "summary?every=2+pivotal?turns=0",
]


def streams(trajectory: Trajectory) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Return what each turn of `trajectory` was sampled from: its seat, and all ids before its completion."""
    known: dict[str, tuple[int, ...]] = {}
    for turn in trajectory.turns:
        seat = turn.seat.partition("/")[0]
        before = turn.prompt_ids if turn.starts_segment else (*known.get(seat, ()), *turn.prompt_ids)
        yield turn.seat, before
        known[seat] = (*before, *turn.completion.token_ids)


@pytest.mark.slow
@pytest.mark.parametrize("world", BUILT_IN)
def test_every_prompt_holds_the_task(world: str, small_chat: Chat) -> None:
    """Who errs now and then, and who says nothing that can be read: both are asked with the task at hand."""
    make = find(world)
    with closing(make()) as environment:
        task = environment.task("train", 3)
        assert not task.prompt, "else there is nothing to keep: the system message has it"
        instructions = environment.instructions()
    teacher = noisy(0.5) if has_expert(make) else fumble_action
    num_later = 0
    for spec in (*ALONE, *NESTED):
        with closing(make()) as environment:
            if (
                spec in ("backtracked", "evolved", "guided", "rollback", "searched")
                and len(seats_of(environment)) > 1
            ):
                continue  # nobody foresees the moves of others
            agent = build(f"{spec}+auto", small_chat, environment, max_tokens=400)
            answers = cycle((small_chat.write("?"), small_chat.write("1. ?")))
            engine = Scripted(partial(said, answers))
            with closing(Rollout(agent, make, engine)) as rollout:
                played = [
                    rollout.demonstrations([task], teacher, seed=1),
                    rollout.groups([task], size=1, seed=1),
                ]
            for (group,) in played:
                (episode,) = group.trajectories
                assert not isinstance(episode.outcome, Failure), (spec, episode.outcome)
                goals: dict[str, str] = {}
                for number, (seat, ids) in enumerate(streams(episode)):
                    _, _, shown = split_head(episode.turns[number].observation)
                    seen = as_text(shown).removesuffix(f"\n\n{REMEMBER}")
                    goal = goals.setdefault(seat.partition("/")[0], seen)
                    if seat.endswith(f"/{ROLE}"):
                        continue  # reads documents for a query, as in the paper
                    prompt = small_chat.encoder.decode(ids)
                    assert goal in prompt, f"{spec}, turn {number} of {seat} does not know: {goal}\n{prompt}"
                    assert instructions in prompt
                    num_later += TASK in prompt
    assert num_later, "some wrapper has forgotten the first observation"


def said(answers: Iterator[tuple[int, ...]], request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
    """Return the next answer, or as much of it as may be said."""
    return next(answers)[: request.sampling.max_tokens]
