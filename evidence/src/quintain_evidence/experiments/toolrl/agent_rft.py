"""Agent RFT: does a service that fails now and then teach the policy to call less?

A server on this machine has a tool and a grader, and fails a share of all attempts at a call, whatever is asked: by the
number of episode, call and attempt. 32 episodes at a time call it as often as chance says, answer rightly as often as
chance says, and get the method's own reward and credit. The number is the correlation of an episode's advantage with
its calls, where the server fails, less that where it does not. The method asks again, and excludes what stays broken.
The control scores each episode that met a failure 0: long ones meet more of them, so calling is punished. In the null
world the server never fails. Gates: every call is joined to its rollout, none sees another's state, and what excluding
without asking again would do to long episodes is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import correlation
from typing import Any

from quintain.adapters.http_tools.environment import HttpTools
from quintain.environments.protocol import begin
from quintain.methods.loops.on_policy import Estimates
from quintain.methods.toolrl import agent_rft
from quintain.rewards.efficiency import num_calls
from quintain.rollout.stepper import guard_call
from quintain.serve.json_app import Refusal, Request, json_app
from quintain.serve.listener import Listener
from quintain.types import (
    Action,
    Completion,
    Failure,
    Group,
    Score,
    Stop,
    Task,
    ToolCall,
    Trajectory,
    Turn,
    derive_seed,
    flatten_scored,
)

PARALLEL, SIZE = 32, 8
RIGHT = "right"
KEY = "local"
STEP: Mapping[str, Any] = {
    "type": "object",
    "properties": {"episode": {"type": "integer"}, "number": {"type": "integer"}},
}


def chance(*parts: int | str) -> float:
    """Return the number in [0, 1) that `parts` name."""
    return derive_seed(*parts) / 2**63


class Service(Listener):
    """A tool that counts the calls of each rollout, a grader, and failures at `rate`; `right` answers are right."""

    def __init__(self, seed: int, rate: float, right: float) -> None:
        self.seed, self.rate, self.right = seed, rate, right
        self.attempts: dict[str, int] = defaultdict(int)
        self.states: dict[str, int] = defaultdict(int)
        self.episodes: dict[str, set[int]] = defaultdict(set)
        """rollout id → the episodes that called with it"""
        self.graded: list[str] = []
        self.met: set[int] = set()
        """episodes that met a failure"""
        super().__init__(json_app(self.answer), token=KEY)

    def answer(self, request: Request) -> Any:
        """Answer a call, or grade."""
        body = request.body
        rollout = str(body["rollout_id"])
        if request.path == "/grade":
            self.graded.append(rollout)
            return {"score": float(body["answer"] == RIGHT)}
        episode, number = body["arguments"]["episode"], body["arguments"]["number"]
        self.attempts[body["call_id"]] += 1
        self.episodes[rollout].add(episode)
        if chance("fails", self.seed, episode, number, self.attempts[body["call_id"]]) < self.rate:
            self.met.add(episode)
            raise Refusal(503, "down")
        self.states[rollout] += 1
        return {"output": str(self.states[rollout])}


def asked(server: Service) -> HttpTools:
    """Return an environment whose tool and grader are those of `server`."""
    headers = {"Authorization": f"Bearer {KEY}"}

    class Asked(HttpTools):
        """Call as often as you like, then answer."""

        name = "service"
        rows = ({"prompt": "Go."},)
        max_turns = 20
        endpoints = (
            {"name": "step", "description": "Count.", "parameters": STEP, "url": f"{server.url}/step"},
        )
        grader = f"{server.url}/grade"

    Asked.headers = headers
    return Asked()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What came of a batch of episodes."""

    groups: Sequence[Group]
    num_calls: int
    num_unjoined: int
    """calls and gradings under an id that is not their rollout's alone"""
    num_foreign: int
    """calls that saw what another rollout had done"""
    met: frozenset[str] = field(default_factory=frozenset[str])
    """episodes, by group and index, that met a failure"""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of correlations, less those of a server that never fails."""
    rate, tasks = float(options.get("rate", 0.1)), int(options.get("tasks", 16))
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("agent_rft", seed, number)
        sound, failing = (
            played(own, share, tasks, float(options.get("right", 0.5))) for share in (0.0, rate)
        )
        before = punished(sound.groups)
        zero = [
            replace(g, trajectories=tuple(zeroed(t, failing) for t in g.trajectories)) for g in failing.groups
        ]
        dropped = [
            replace(g, trajectories=tuple(t for t in g.trajectories if name_of(t) not in failing.met))
            for g in failing.groups
        ]
        found.append(
            {
                "method": punished(failing.groups) - before,
                "control": punished(zero) - before,
                "null_method": punished(sound.groups) - before,
                "null_control": punished([replace(g, trajectories=g.trajectories) for g in sound.groups])
                - before,
                "extra.unjoined": float(sound.num_unjoined + failing.num_unjoined),
                "extra.foreign": float(sound.num_foreign + failing.num_foreign),
                "extra.calls": float(sound.num_calls + failing.num_calls),
                "extra.covered": coverage(failing.groups, sound.groups),
                "extra.covered_without_retry": coverage(dropped, sound.groups),
            }
        )
    return found


def name_of(trajectory: Trajectory) -> str:
    """Return the name of the episode."""
    return f"{trajectory.group} {trajectory.index}"


def zeroed(trajectory: Trajectory, batch: Batch) -> Trajectory:
    """Return `trajectory` with a score of 0 where it met a failure."""
    if name_of(trajectory) not in batch.met:
        return trajectory
    turns = tuple(replace(turn, reward=0.0) for turn in trajectory.turns)
    return replace(trajectory, turns=turns, outcome=Score(value=0.0, is_success=False))


def punished(groups: Sequence[Group]) -> float:
    """Return the correlation of advantages, by the method's reward and credit, with calls."""
    method = agent_rft.method(agent_rft.Config(call_penalty=0.0, token_penalty=0.0))
    paid = method.reward(groups)
    credit = method.credit(paid, Estimates())
    advantages = [float(turns[0][0]) for turns in credit.advantages]
    return correlation(advantages, [float(num_calls(t)) for t in flatten_scored(paid)])


def coverage(groups: Sequence[Group], whole: Sequence[Group]) -> float:
    """Return how many of the episodes with 5 or 6 calls are still there."""
    kept, every = (sum(num_calls(t) >= 5 for t in flatten_scored(found)) for found in (groups, whole))
    return kept / max(every, 1)


def played(seed: int, rate: float, num_tasks: int, right: float) -> Batch:
    """Return a batch of `num_tasks` groups against a server that fails at `rate`; a share `right` answers rightly."""
    server = Service(seed, rate, right)
    server.start()
    try:
        with ThreadPoolExecutor(PARALLEL) as threads:
            episodes = list(threads.map(partial(one, server), range(num_tasks * SIZE)))
    finally:
        server.close()
    groups = [
        Group(task=part[0].task, trajectories=tuple(part))
        for part in (episodes[k : k + SIZE] for k in range(0, len(episodes), SIZE))
    ]
    ids = server.episodes
    unjoined = sum(len(known) != 1 for known in ids.values()) + sum(
        rollout not in ids for rollout in server.graded
    )
    return Batch(
        groups=groups,
        num_calls=len(server.attempts),
        num_unjoined=unjoined + len(server.graded) - len(set(server.graded)),
        num_foreign=sum(
            str(turn.observation) != str(k)
            for t in flatten_scored(groups)
            for k, turn in enumerate(t.turns[1:], 1)
        ),
        met=frozenset(name_of(episodes[k]) for k in server.met),
    )


def one(server: Service, episode: int) -> Trajectory:
    """Return episode number `episode`: one to six calls, then a right or a wrong answer."""
    num = 1 + int(6 * chance("calls", server.seed, episode))
    is_right = chance("right", server.seed, episode) < server.right
    world = asked(server)
    task = Task(id=f"service/train/{episode // SIZE}", environment="service", seed=2 * (episode // SIZE))
    turns: list[Turn] = []
    outcome: Score | Failure | None = None
    told: Any = guard_call(lambda: begin(world, task))
    for number in range(num + 1):
        call = ToolCall(name="step", arguments={"episode": episode, "number": number})
        is_last = number == num
        action = Action(text=RIGHT if is_right else "wrong") if is_last else Action(tool_calls=(call,))
        result = guard_call(lambda action=action: world.step(action))
        turns.append(
            Turn(
                observation=told,
                prompt_ids=(1,),
                completion=Completion(token_ids=(2,), logprobs=(-0.5,), stop="stop"),
                action=action,
                reward=0.0 if isinstance(result, Failure) else result.reward,
                starts_segment=not turns,
            )
        )
        if isinstance(result, Failure):
            outcome = result
            break
        told = result.observation
        outcome = Score(value=result.reward, is_success=bool(result.is_success))
    world.close()
    assert outcome is not None, "an episode has a turn"
    return Trajectory(
        task=task,
        turns=tuple(turns),
        outcome=outcome,
        stop=Stop.TERMINATED,
        seed=episode,
        group=task.id,
        index=episode % SIZE,
    )
