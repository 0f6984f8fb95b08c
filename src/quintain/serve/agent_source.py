"""Which source plays the episodes of an agent: one that lives outside gets a recording endpoint.

Its demonstrations are episodes as well, in which its expert answers for the model: what is imitated are the requests
that its client makes, in the very tokens in which the policy will see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from quintain.agents.catalog import build, check, is_outside
from quintain.agents.external_agent import Outside
from quintain.agents.protocol import Agent
from quintain.curriculum.streams import TaskStream
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.boundary import ask, tasks_of
from quintain.environments.extras import extra_module
from quintain.environments.protocol import Factory
from quintain.rollout.collect import Limits, OnEpisode, Rollout
from quintain.rollout.source import Kind, MakeSource
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Failure, Task, Trajectory, derive_seed

NUM_READ = 24
"""Episodes of an agent outside that a new tokenizer is trained on."""
MAX_LETTERS = 1 << 16
"""Tokens of an answer in them, which are letters."""


def find_source(agent: Agent, usual: Kind = "lockstep") -> Kind | MakeSource:
    """Return what plays the episodes of `agent`: the `usual` source, unless it lives outside.

    Raises:
        MissingExtra: it lives outside, and there is no package that serves the endpoint.
        UsageError: it, or its grader, is not there.
    """
    if not isinstance(agent, Outside):
        return usual
    return outsiders(agent)


def outsiders(agent: Outside, *, is_taught: bool = False) -> MakeSource:
    """Return what plays the episodes of `agent`, with its expert in the model's place if `is_taught`.

    Raises:
        MissingExtra: there is no package that serves the endpoint.
        UsageError: it, its grader or its expert is not there.
    """
    for package in ("starlette", "uvicorn", "websockets"):
        extra_module(package, package=package, extra="serve", feature="an agent outside")
    from quintain.serve.source import ExternalAgents

    return ExternalAgents(agent, is_checked=is_taught, is_taught=is_taught)


def taught_episodes(
    agent: Outside,
    make_environment: Factory,
    tasks: Sequence[Task],
    *,
    seed: int,
    on_episode: OnEpisode | None = None,
) -> list[Trajectory]:
    """Return the scored ones of an episode of each of `tasks` that `agent` plays with its expert.

    Raises:
        FailureRateError: more than half of them failed.
    """
    says = Scripted(_says_nothing)
    home = outsiders(agent, is_taught=True)
    rollout = Rollout(agent, make_environment, says, limits=Limits(max_failure_share=0.5), source=home)
    try:
        groups = rollout.groups(tasks, size=1, seed=seed, on_episode=on_episode)
    finally:
        rollout.close()
    return [trajectory for group in groups for trajectory in group.scored]


def client_texts(agent: str, make_environment: Factory, seed: int) -> Iterator[str]:
    """Yield the chats of some episodes that `agent` plays with its expert: what a new tokenizer is trained on."""
    if not is_outside(agent) or "expert" not in check(agent)[-1].options:
        return
    # Any tokenizer does to see what is written: this one knows letters and the marks of roles.
    chat = Chat(train_tokenizer(["<|system|>a<|user|>b<|assistant|>c<|end|>"], 300))
    outside = ask(make_environment, lambda environment: build(agent, chat, environment))
    assert isinstance(outside, Outside), "its name says so"
    tasks = TaskStream(tasks_of(make_environment), first=0).draw(0, NUM_READ)
    outside = replace(outside, max_tokens=MAX_LETTERS)
    for trajectory in taught_episodes(outside, make_environment, tasks, seed=derive_seed(seed, "corpus")):
        for turn in trajectory.turns:
            yield chat.encoder.decode((*turn.prompt_ids, *turn.completion.token_ids))


def _says_nothing(request: Request, _stream: tuple[int, ...]) -> Failure:
    """Answer for a model that only says what it is told to."""
    return Failure(owner="engine", kind="untold", message=f"{request.session}: nobody told what to say")
