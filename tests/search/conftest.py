"""What a search is tried with."""

from collections.abc import Callable, Sequence

from tests.rollout.conftest import tokenizer

from quintain.agents.catalog import build
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import Environment
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.types import Task, Trajectory

__all__ = ["tokenizer"]


def play_words(
    make: Callable[[], Environment], task: Task, chat: Chat, spec: str, words: Sequence[str]
) -> Trajectory:
    """Return the episode of `task` in which a model of the harness `spec` says the `words`, one after the other."""
    said = iter(words)
    engine = Scripted(lambda request, stream: chat.write(next(said)), chat.tokenizer)
    rollout = Rollout(build(spec, chat, make()), make, engine)
    (group,) = rollout.groups([task], size=1, seed=0)
    rollout.close()
    return group.trajectories[0]


def list_contexts(trajectory: Trajectory) -> list[tuple[int, ...]]:
    """Return all that the model had before it when it spoke, turn by turn."""
    found: list[tuple[int, ...]] = []
    said: tuple[int, ...] = ()
    for turn in trajectory.turns:
        before = turn.prompt_ids if turn.starts_segment else (*said, *turn.prompt_ids)
        found.append(before)
        said = (*before, *turn.completion.token_ids)
    return found
