"""The nouns of episodes: what is asked, said, done and scored; and the counter-based seeds."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from quintain.types.grammar import Constraint

Owner = Literal["policy", "environment", "tool", "judge", "engine"]
Split = Literal["train", "eval"]
UNKNOWN_TOOL = "unknown"
ToolCause = Literal["invalid_call", "tool_error", "timeout", "infrastructure", "refused"]


class Nothing(dict[str, Any]):
    """The empty mapping as a default: hashable, as dataclasses ask of one, and closed to assignment."""

    __hash__ = object.__hash__  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]

    def __setitem__(self, key: str, value: Any) -> None:
        """Refuse: the default is one object for all."""
        raise TypeError("the empty default is shared: give a mapping of your own")


NOTHING: Mapping[str, Any] = Nothing()
ALONE = "agent"
"""The seat of an environment that has one seat only."""
ANSWER = "answer"
"""Reward term of the turns that answer, above 0 where the answer was right."""


def derive_seed(*parts: int | str) -> int:
    """Return the 63-bit seed that the coordinates `parts` name, such as (run, step, task, sample, turn).

    The same parts give the same seed in every process, whatever the order or number of workers.
    Integers and strings never collide: ``derive_seed(1) != derive_seed("1")``.
    """
    text = "\x1f".join([f"{type(part).__name__}:{part}" for part in parts])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def is_constant(values: Sequence[float]) -> bool:
    """Whether `values` are all the same up to rounding (1e-8 of their size, at least 1e-8); fewer than two are.

    What is constant in a group teaches a method that compares within groups nothing.
    """
    if len(values) < 2:
        return True
    low, high = min(values), max(values)
    return high - low <= 1e-8 * max(1.0, abs(low), abs(high))


class Stop(StrEnum):
    """Why an episode ended.

    `terminated` and `max_turns` are the task's own end: it was decided, or its own limit of turns was reached. `cut`,
    `max_tokens` and `timeout` are limits of whoever trains, after which the task would have gone on.
    """

    TERMINATED = "terminated"
    MAX_TURNS = "max_turns"
    CUT = "cut"
    """Fewer turns were asked for than the task allows."""
    MAX_TOKENS = "max_tokens"
    TIMEOUT = "timeout"
    FAILURE = "failure"

    @property
    def is_truncation(self) -> bool:
        """Whether a limit ended the episode, the task's own or another."""
        return self is Stop.MAX_TURNS or self.is_cut

    @property
    def is_cut(self) -> bool:
        """Whether the task would have gone on, so that value is left beyond the last turn."""
        return self in (Stop.CUT, Stop.MAX_TOKENS, Stop.TIMEOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A piece of text in an observation: ``Text(text="You see a red ball.")``."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult(Text):
    """What one of several tool calls of a turn came to: ``CallResult(text="sun in Oslo", call=1)``."""

    call: int
    """Its number among the calls of the turn before, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture in an observation: ``Image(data=png_bytes, media_type="image/png")``."""

    data: bytes
    media_type: str


Content = Text | CallResult | Image
Observation = str | Sequence[Content]


def as_content(observation: Observation) -> tuple[Content, ...]:
    """Return `observation` as content parts; a string becomes one `Text`."""
    if isinstance(observation, str):
        return (Text(text=observation),)
    return tuple(observation)


def as_text(observation: Observation) -> str:
    """Return the text of `observation`, with pictures left out; results of several calls are lines of their own."""
    if isinstance(observation, str):
        return observation
    texts = [part for part in observation if isinstance(part, Text)]
    return "".join(
        ["\n" * (at > 0 and isinstance(part, CallResult)) + part.text for at, part in enumerate(texts)]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it. Example: ``ToolSpec(name="guess", description="...", parameters={...})``."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call the model wrote: ``ToolCall(name="guess", arguments={"number": 16})``."""

    name: str
    arguments: Mapping[str, Any] = NOTHING
    id: str = field(default="", compare=False)
    """What its result names it by, where somebody gave it an id; it is no part of what is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolError:
    """A call that came to nothing: ``ToolError(tool="guess", cause="invalid_call")``.

    An invalid call is the policy's mistake; a tool error is the tool's, a timeout that of whatever it waited
    for, and infrastructure is everything around it. What a guard refused was not carried out at all.
    """

    tool: str
    """`UNKNOWN_TOOL` for all that do not exist: their names are the model's and have no end."""
    cause: ToolCause


INLINE_REASONING = "<think>\n{}\n</think>\n\n"
"""How reasoning is written in front of an answer where nothing else says how, as by templates that know of none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat: ``Message(role="user", content=as_content("hello"))``."""

    role: Literal["system", "user", "assistant", "tool"]
    content: tuple[Content, ...]
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    """Thoughts of an assistant, which its chat template writes where they belong (`reasoning_content` of servers)."""
    tool_call_id: str = ""
    """Of a tool's result: the id of the call that it answers; empty where nobody gave one."""
    name: str = ""
    """Of a tool's result: the tool; of others: who speaks, where it is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What a harness read out of a completion.

    Example: ``Action(text="left")`` or ``Action(text="<tool_call>…", tool_calls=(ToolCall(name="guess", …),))``.
    """

    text: str = ""
    """The action proper, without thoughts or markup; the whole completion for a plain-text harness."""
    tool_calls: tuple[ToolCall, ...] = ()
    error: str | None = None
    """Why the completion could not be read, written for the model; it comes back as the observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to solve: ``Task(id="guess/train/7", environment="guess", seed=7)``."""

    id: str
    environment: str
    seed: int
    split: Split = "train"
    prompt: str = ""
    data: Mapping[str, Any] = NOTHING
    tags: frozenset[str] = frozenset()
    """Capabilities: planning, tools, memory, self-improvement, reasoning, perception."""
    _rng: list[random.Random] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def is_held_out(self) -> bool:
        """Whether no store that an agent reads (a library, lessons, experience) may learn from its episodes."""
        return self.split == "eval"

    @property
    def rng(self) -> random.Random:
        """The task's own stream of randomness; `dataclasses.replace(task)` gives it back unread."""
        if not self._rng:
            self._rng.append(random.Random(self.seed))
        return self._rng[0]


class Unnamed(float):
    """The reward of a result that names none: 0, or where it pays by seat, what it paid a seat on average."""

    __slots__ = ()


UNNAMED = Unnamed()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What an environment answers to an action: ``StepResult(observation="higher")``."""

    observation: Observation
    reward: float = UNNAMED
    """Reward of everybody; beside `rewards`, what the episode as a whole earns, which is the mean over all seats of
    `rewards` where it is not given."""
    rewards: Mapping[str, float] = NOTHING
    """Rewards by seat, where an action pays several: ``{"buyer": 1.0, "seller": -1.0}``. Each seat learns from its own
    alone."""
    is_terminated: bool = False
    is_truncated: bool = False
    is_success: bool | None = None
    """Whether the task is solved; None leaves it open until the episode ends (then: the sum of `reward` > 0)."""
    is_valid: bool = True
    """False when the action could not be carried out and changed nothing."""
    reward_terms: Mapping[str, float] = NOTHING
    tool_errors: tuple[ToolError, ...] = ()
    """Calls of this action that failed, in order."""

    @property
    def is_over(self) -> bool:
        """Whether the episode ends with it."""
        return self.is_terminated or self.is_truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What a completion was drawn from, among others: ``Candidate(token_ids=(5,), logprobs=(-1.5,), length=1.0)``."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Log-probability of each token when it was drawn; their sum over `length` is the score."""
    length: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What an engine sampled, end-of-turn token included when it was sampled.

    Example: ``Completion(token_ids=(17, 2), logprobs=(-0.1, -0.2), stop="stop", policy_version=3)``.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Log-probability of each sampled token under the sampling distribution (nats); empty for demonstrations."""
    stop: Literal["stop", "length"]
    """`stop`: a stop token was sampled (it is the last id); `length`: the limit cut the completion."""
    policy_version: int = 0
    """Version of the weights that the last token was sampled with."""
    policy: str = "policy"
    """Name of the policy in the run: policy, opponent, planner, …"""
    version_spans: tuple[tuple[int, int], ...] = ()
    """(number of the first token, version), where weights changed under way; empty: one version for all."""
    candidates: tuple[Candidate, ...] = ()
    """What it was drawn from as a whole, itself included, by the softmax of scores; empty: token by token."""
    constraint: Constraint | None = None
    """What it was sampled under, where `logprobs` are those among the allowed tokens; None: among all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One exchange: the tokens appended since the last turn, what the policy sampled, what came of it.

    Example: observation "higher" → `prompt_ids` (5, 9, 4) → completion (17, 2) → action "guess 20" → reward 0.
    `prompt_ids` are never trained on. With `starts_segment` they are the whole prompt of a new token stream;
    without it they continue the stream of the turn before, or, where several seats act, of this seat's turn before.
    """

    seat: str = ALONE
    """Who spoke; with a role after a slash (``agent/plan``) it spoke to itself, see `is_internal`."""
    observation: tuple[Content, ...]
    prompt_ids: tuple[int, ...]
    completion: Completion
    action: Action
    reward: float = 0.0
    rewards: Mapping[str, float] = NOTHING
    """What the action paid each seat, where the environment says so by seat; see `StepResult.rewards`."""
    reward_terms: Mapping[str, float] = NOTHING
    state_key: str | None = None
    """Identity of the environment's state *before* the action, equal across trajectories in the same state."""
    is_valid: bool = True
    starts_segment: bool = False
    tool_errors: tuple[ToolError, ...] = ()
    facts: Mapping[str, Any] = NOTHING
    """What a recording endpoint saw of the call: ``{"delivery": "whole", "after": 3, …}``; see `quintain.data.used`."""

    @property
    def speaker(self) -> str:
        """The seat without its role: whose token stream the turn belongs to."""
        return self.seat.partition("/")[0]

    def has_role(self, role: str) -> bool:
        """Whether the turn is of `role`: ``plan`` those of ``agent/plan``, ``act`` those that act."""
        return (self.seat.partition("/")[2] or "act") == role

    @property
    def is_internal(self) -> bool:
        """Whether nothing was done: a plan, a critique or a memory, which only the agent itself read."""
        return "/" in self.seat

    @property
    def is_answer(self) -> bool:
        """Whether the environment calls the turn an answer: it has the reward term `ANSWER`."""
        return ANSWER in self.reward_terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """An outcome that may be trained on: ``Score(value=1.0, is_success=True)``.

    `value` is the undiscounted return: the sum of the rewards, and of several seats that are paid each its own the mean
    of what they got, unless the environment names a reward of the episode beside theirs; see `StepResult.reward`.
    """

    value: float
    is_success: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something broke; it has an owner and is never a number.

    Example: ``Failure(owner="environment", kind="timeout", message="step took longer than 30 s")``.
    """

    owner: Owner
    kind: str
    message: str


Outcome = Score | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Where an episode was played on from: ``Branch(episode="9f3c…", turn=2)`` shares that episode's turns 0 and 1."""

    episode: str
    """`Trajectory.id` of the episode that it shares its beginning with"""
    turn: int
    """number of turns that are shared; the branch's own begin at this number"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """What was lived through in one episode; its turns are a forest of tokens, see `quintain.types.forest`.

    Example: a `Trajectory` of two turns whose second has `starts_segment` is two token streams; a `Sample` is
    made of each.
    """

    task: Task
    turns: tuple[Turn, ...]
    outcome: Outcome
    stop: Stop
    seed: int
    """Counter-based seed of this episode's sampling; unique within a step."""
    group: str
    """Explicit id of the group it is compared in; order of arrival means nothing."""
    index: int
    """Place within the group."""
    final_observation: tuple[Content, ...] = ()
    seconds: float = 0.0
    id: str = field(default="", compare=False)
    """The journal's name of it, 20 hexadecimal digits from run, phase, step, group and index; empty until recorded."""
    parent: Branch | None = None
    """The episode that it was played on from, where it did not begin with a reset."""
    turn_numbers: tuple[int, ...] = ()
    """Of an episode that is one seat's part of another: the number that each of its turns has there; empty: its own."""
    turn_rewards: tuple[float, ...] = ()
    """Of such a part: what each of its turns paid there, without what came by others' turns; empty: `Turn.reward`."""

    @property
    def is_success(self) -> bool:
        """Whether the task was solved; an episode in which something broke has not solved it."""
        return isinstance(self.outcome, Score) and self.outcome.is_success

    @property
    def num_sampled(self) -> int:
        """Number of tokens the policy sampled."""
        return sum(len(turn.completion.token_ids) for turn in self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Episodes of one task that are compared with each other: ``Group(task=task, trajectories=(a, b))``."""

    task: Task
    trajectories: tuple[Trajectory, ...]

    @property
    def scored(self) -> tuple[Trajectory, ...]:
        """The trajectories that may be trained on: failures are left out, and at least one token was sampled."""
        return tuple(t for t in self.trajectories if isinstance(t.outcome, Score) and t.num_sampled)

    @property
    def returns(self) -> list[float]:
        """The undiscounted returns of the trajectories in `flatten_scored`."""
        return [t.outcome.value for t in self.scored if isinstance(t.outcome, Score)]


def flatten_scored(groups: Iterable[Group]) -> tuple[Trajectory, ...]:
    """Return the trajectories of `groups` that may be trained on, in order; see `Group.scored`."""
    return tuple(trajectory for group in groups for trajectory in group.scored)
