"""Every harness of the catalogue solves a world: the expert is written in its words, and a script says them."""

import gc
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from quintain.agents.catalog import OUTSIDE, build, names
from quintain.credit.group import group_relative
from quintain.data.pack import micro_batches
from quintain.data.samples import imitation_samples, samples_from
from quintain.engines.local import Local
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import Environment, Expert
from quintain.errors import UsageError
from quintain.learning.learner import Learner
from quintain.losses.policy import reinforce
from quintain.models.tiny import build_tiny
from quintain.rollout.collect import Limits, Rollout
from quintain.safety.isolation import find_fault
from quintain.text.chat import Chat
from quintain.types import Action, Score, Trajectory
from quintain.worlds.collab.game import Collab
from quintain.worlds.craft.game import Craft
from quintain.worlds.fit.game import Fit
from quintain.worlds.guess.game import Guess
from quintain.worlds.keydoor.game import KeyDoor
from quintain.worlds.screen.game import Screen
from quintain.worlds.stream.game import Stream

MORE = (
    "endpoint?command=true",
    "tools?calls=llama",
    "tools?calls=mistral",
    "plan?replan_every=1",
    "rci?rounds=2+react",
    "summary?every=1+react",
    "window?turns=1+tools",
    "window?turns=0+choice",
    "window?turns=1+rci",
    "plan?replan_every=2+window?turns=1",
    "memory+choice",
    "memory?form=one+text",
    "memory?form=one+tools?calls=mistral",
    "window?turns=1+code",
    "poact+code",
    "backoff?answer=guess+tools",
    "budget?calls=1+tools",
    "capped?calls=9",
    "constrained?calls=mistral&max_calls=2",
    "plan+pivotal?turns=2+simplified+rci",
    "again?ends=guess+tools",
    "backtracked+react",
    "evolved+react",
    "rollback+text",
    "rollback+window?turns=2+text",
    "guided?size=2+react",
    "searched?size=1+react",
    "searched?by=mcts&score=model+tools",
)

NEED_MORE = (
    OUTSIDE,
    "again",
    "capped",
    "backoff",
    "evolved",
    "guided",
    "ordered",
    "poact",
    "rollback",
    "searched",
    "team",
)
SPECS = [*(name for name in names() if name not in NEED_MORE), *MORE]


def expert(environment: Environment, rng: Random, seen: Sequence[Any]) -> Action:
    assert isinstance(environment, Expert)
    return environment.expert_action()


class Helped(Craft):
    """A land whose adviser knows what comes next, whatever it is told: nobody knows what to tell another one."""

    is_variant = True

    def __init__(self) -> None:
        super().__init__(depth=2, reward="dense")

    def advise(self, message: str) -> str:
        return self.expert_thing()


WORLDS = {
    "advised": Helped,
    "chunks": Stream,
    "drafted": Fit,
    "experts": Collab,
    "grounded": Screen,
    "routed": KeyDoor,
    "text": KeyDoor,
    "workforce": Craft,
}
"""Harnesses that fit few worlds; plain text has no words for a tool call."""


def world_of(spec: str, chat: Chat) -> type[Environment]:
    """Return the first of the worlds that the harness fits."""
    if spec in WORLDS or spec.endswith("+text"):
        return WORLDS[spec.rpartition("+")[2]]
    try:
        build(spec, chat, Guess())
    except UsageError:
        return KeyDoor
    return Guess


def repeated(chat: Chat, agent: Any, make: type[Environment], known: Trajectory) -> Trajectory:
    """Return the episode in which a script says what was said in `known`."""
    said = iter([turn.completion.token_ids for turn in known.turns])

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        ids = next(said)
        assert len(ids) <= request.sampling.max_tokens
        assert not request.sampling.stop_ids & set(ids[:-1])
        return ids

    rollout = Rollout(agent, make, Scripted(script, chat.tokenizer))
    (group,) = rollout.groups([known.task], size=1, seed=3)
    rollout.close()
    return group.trajectories[0]


@pytest.mark.parametrize("spec", SPECS)
def test_the_expert_in_the_words_of_a_harness_solves_the_world(chat: Chat, spec: str) -> None:
    if spec.endswith("code") and find_fault():
        pytest.skip(find_fault())
    make = world_of(spec, chat)
    agent = build(spec, chat, make(), max_tokens=512)
    rollout = Rollout(agent, make, None)
    (group,) = rollout.demonstrations([make().task("train", 4)], expert, seed=1)
    known = group.trajectories[0]
    assert isinstance(known.outcome, Score)
    assert known.outcome.is_success
    assert all(turn.is_valid and turn.action.error is None for turn in known.turns)
    again = repeated(chat, agent, make, known)
    for turn, other in zip(known.turns, again.turns, strict=True):
        assert turn.prompt_ids == other.prompt_ids
        assert (turn.action, turn.seat, turn.observation) == (other.action, other.seat, other.observation)
        assert turn.starts_segment == other.starts_segment
    assert again.outcome == known.outcome
    assert sum(int(sample.loss_weight.sum()) for sample in imitation_samples([known])) == known.num_sampled


def uncollected(work: Callable[[], None]) -> list[str]:
    """Return of which classes of ours `work` leaves objects that only the collector of cycles finds."""
    gc.freeze()  # what is there already is not looked at
    gc.disable()
    try:
        work()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = [type(each) for each in gc.garbage]
        return sorted(
            {f"{kind.__module__}.{kind.__name__}" for kind in kinds if "quintain" in kind.__module__}
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


@pytest.mark.parametrize("spec", SPECS)
def test_an_episode_that_has_ended_is_freed_at_once(chat: Chat, spec: str) -> None:
    """Circles of its parts would stay until the collector comes by, which is seldom in a process full of objects."""
    if spec.endswith("code") and find_fault():
        pytest.skip(find_fault())
    make = world_of(spec, chat)
    agent = build(spec, chat, make(), max_tokens=512)
    script, limits = Scripted(lambda request, ids: (5,) * 3, chat.tokenizer), Limits(max_failure_share=1.0)
    played, sampled = Rollout(agent, make, None), Rollout(agent, make, script, limits=limits)
    task = make().task("train", 4)

    def play() -> None:
        played.demonstrations([task], expert, seed=1)
        sampled.groups([task], size=2, seed=3)

    play()
    assert uncollected(play) == []
    played.close()
    sampled.close()


@pytest.mark.parametrize(
    "spec", ["scored", "twosome", "window?turns=1", "memory", "summary?every=1", "plan", "rci"]
)
def test_what_is_sampled_is_what_the_learner_computes(
    chat: Chat, tokenizer: PreTrainedTokenizerFast, spec: str
) -> None:
    make = world_of(spec, chat)
    model = build_tiny(tokenizer, size="micro", seed=0)
    rollout = Rollout(build(spec, chat, make(), max_tokens=6), make, Local(model), limits=Limits(max_turns=3))
    groups = rollout.groups([make().task("train", n) for n in range(2)], size=2, seed=5)
    samples = samples_from(group_relative(groups))
    (batch,) = micro_batches(samples, max_tokens=1 << 16)
    report = Learner(model).step([batch], reinforce(), is_on_policy=True)
    assert report.num_tokens > 0
    assert report.metrics["gap/max"] < 1e-4
