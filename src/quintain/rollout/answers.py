"""Answers to recorded conversations: the policy says what it would, and nothing is carried out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from quintain.agents.harness import ChatSession, JsonTools, PlainText, sampling_of
from quintain.agents.protocol import Brief
from quintain.engines.protocol import Request
from quintain.errors import UsageError
from quintain.rollout.collect import Rollout
from quintain.rollout.request import POLICY
from quintain.rollout.samplers import sample_all
from quintain.types import (
    Action,
    Completion,
    Failure,
    Group,
    Message,
    Score,
    Stop,
    Trajectory,
    as_content,
    derive_seed,
)


def answer_contexts(rollout: Rollout, contexts: Sequence[Trajectory], *, size: int, seed: int) -> list[Group]:
    """Return `size` answers of the policy to the prompt of the one turn of each of `contexts`.

    They are read as calls of tools, or as text. An answer for which there is no room is a failure.

    Raises:
        UsageError: the agent is none that answers a plain conversation.
        EngineFault: the engine says nothing.
    """
    agent, engine = rollout.agent, rollout.engine
    if not isinstance(agent, PlainText | JsonTools) or engine is None:
        raise UsageError(
            f"answers to conversations through the agent {type(agent).__name__}: got one that says more than answers; "
            "take auto, tools or text"
        )
    reader = JsonTools(agent.chat, agent.temperature, agent.max_tokens)
    usual = sampling_of(agent.chat, agent.temperature, agent.max_tokens)
    requests: dict[str, Request] = {}
    for place, context in enumerate(contexts):
        prompt = context.turns[0].prompt_ids
        room = min(engine.max_length - len(prompt), usual.max_tokens)
        for index in range(size if room > 0 else 0):
            name = f"{place}:{context.task.id}/{index}"
            requests[name] = Request(
                session=name,
                prompt_ids=prompt,
                seed=derive_seed(seed, context.task.id, place, index),
                sampling=replace(usual, max_tokens=room),
            )
    found: dict[str, Completion | Failure] = {}
    asked = list(requests.values())
    for first in range(0, len(asked), rollout.limits.concurrency):
        part = asked[first : first + rollout.limits.concurrency]
        found |= sample_all(engine, part, patience=rollout.limits.reply_timeout)
    full = Failure(owner="policy", kind="no_room", message="the conversation fills the model's context")
    return [
        Group(
            task=context.task,
            trajectories=tuple(
                answer_in(
                    context,
                    found.get(name := f"{place}:{context.task.id}/{index}", full),
                    reader,
                    group=f"{place}:{context.task.id}",
                    index=index,
                    seed=requests[name].seed if name in requests else 0,
                )
                for index in range(size)
            ),
        )
        for place, context in enumerate(contexts)
    ]


def answer_in(
    context: Trajectory,
    result: Completion | Failure,
    reader: JsonTools,
    *,
    group: str,
    index: int,
    seed: int,
) -> Trajectory:
    """Return `context` with the answer `result` in the place of its own."""
    own = replace(context, group=group, index=index, seed=seed, id="", parent=None)
    if isinstance(result, Failure):
        return replace(own, turns=(), outcome=result, stop=Stop.FAILURE)
    completion = replace(result, policy=POLICY)
    turn = replace(
        context.turns[0],
        completion=completion,
        action=read_answer(reader, context, completion),
        reward=0.0,
        is_valid=True,
    )
    return replace(own, turns=(turn,), outcome=Score(value=0.0, is_success=False), stop=Stop.CUT)


def read_answer(reader: JsonTools, context: Trajectory, completion: Completion) -> Action:
    """Return what an answer does."""
    session = reader.open(Brief(task=context.task, instructions=""))
    assert isinstance(session, ChatSession), "it is a plain conversation"
    session.show([Message(role="user", content=as_content(""))])
    return session.read(completion)
