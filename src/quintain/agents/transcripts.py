"""Conversations that others wrote as trajectories: the tokens that the policy would have lived through.

Each answer becomes a turn. Its prompt is what the harness appends for the messages before it, its completion what the
policy would have sampled, end of turn included; so what is trained is what a rollout shows. Answers that are not to be
trained are part of the prompt of the next turn: the mask needs no rule of its own, because only completions are
trained. Where an environment is given, its tools and harness are shown as in a rollout, and its instructions unless a
record has a system message of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from quintain.agents.deliberation import with_words
from quintain.agents.harness import ChatSession, JsonTools
from quintain.agents.protocol import Agent, Brief
from quintain.data.messages import FIELDS, OpeningPrompt, conversation_data
from quintain.data.records import Overlong, Preference, Record, RecordMessage, TrainOn, Unusable
from quintain.errors import DataError, UsageError
from quintain.text.chat import Chat
from quintain.types import (
    Action,
    CallResult,
    Completion,
    Content,
    Message,
    Pair,
    Score,
    Stop,
    Task,
    Text,
    ToolSpec,
    Trajectory,
    Turn,
    as_content,
    as_text,
)

TRANSCRIPTS = "transcripts"
"""Environment of the task of a conversation that no environment was given for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which answers are trained, and how long a conversation may be: ``Rules(train_on="last", max_tokens=4096)``."""

    train_on: TrainOn = "all"
    """last answer, all but those tagged otherwise, or only those tagged (``"train": true``, ``"weight": 1``)"""
    max_tokens: int | None = None
    """of a token stream; None for any length"""
    limit: str = "max_context"
    """what sets `max_tokens`, for errors"""
    overlong: Overlong = "error"
    unusable: Unusable = "error"
    """what becomes of a conversation that cannot be written"""
    opening: Callable[[Record], str] = lambda _: ""
    """what is said behind the first thing that a record shows"""
    takes_unlisted: bool = False
    """whether answers that are trained may call a tool that is not listed"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The environment that conversations are written for: what it tells, and the harness of its rollouts."""

    name: str
    told: tuple[OpeningPrompt, ...]
    """what it tells before an episode; of a mixture, what each part tells"""
    agent: Agent

    def find_prompt(self, record: Record) -> OpeningPrompt:
        """Return what is told where `record` was written: that with its tools, else the first."""
        fits = (told for told in self.told if same_tools(told.tools, record.tools))
        return next(fits, self.told[0])


@dataclass(slots=True)
class Notes:
    """What was seen while conversations were written; nothing of it stops a run."""

    num_long: int = 0
    """left out, because they are longer than the limit"""
    num_untrained: int = 0
    """left out, because none of their answers is to be trained"""
    lost: Counter[str] = field(default_factory=Counter[str])
    """reasoning and words of answers that the model's template cannot write where they stand"""
    other_tools: Counter[str] = field(default_factory=Counter[str])
    """places of records whose tools are not those of the environment"""
    unread: Counter[str] = field(default_factory=Counter[str])
    """what nobody reads, such as ``key 'foo' of messages``"""
    num_empty: int = 0
    """answers that say nothing, and are not trained"""
    mended: list[str] = field(default_factory=list[str])
    """places of records with half of a surrogate pair"""
    unusable: list[str] = field(default_factory=list[str])
    """a line for each record that was left out because it cannot be used"""

    def see(self, record: Record) -> None:
        """Take in what reading `record` found."""
        self.unread.update(record.unread)
        self.num_empty += record.num_empty
        if record.is_mended and record.place not in self.mended[-1:]:
            self.mended.append(record.place)

    def left_out(self, rules: Rules) -> list[str] | None:
        """Return where a record that cannot be read by `rules` goes; None where it is an error."""
        return self.unusable if rules.unusable == "drop" else None


class Transcriber:
    """Writes conversations: ``Transcriber(chat, Rules(), place=None).trajectory(record)``."""

    def __init__(self, chat: Chat, rules: Rules, *, place: Place | None = None) -> None:
        self.chat, self.rules, self.place = chat, rules, place
        self.notes = Notes()

    def trajectories(self, records: Iterable[Record]) -> Iterator[Trajectory]:
        """Yield the trajectory of each of `records` that has something to train; `notes` counts the others.

        Raises:
            DataError: see `trajectory`.
        """
        for record in records:
            self.notes.see(record)
            try:
                found = self.trajectory(record)
            except DataError as error:
                if self.rules.unusable == "error":
                    raise
                self.notes.unusable.append(str(error))
                continue
            if found is None:
                self.notes.num_untrained += 1
            elif self._fits(found, record):
                yield found
            else:
                self.notes.num_long += 1

    def pairs(self, preferences: Iterable[Preference]) -> Iterator[Pair]:
        """Yield the pair of each of `preferences` that fits and has something to train on both sides.

        Raises:
            DataError: see `trajectory`.
        """
        for each in preferences:
            records = (each.chosen, each.rejected)
            for record in records:
                self.notes.see(record)
            try:
                sides = [(self.trajectory(record), record) for record in records]
            except DataError as error:
                if self.rules.unusable == "error":
                    raise
                self.notes.unusable.append(str(error))
                continue
            (chosen, _), (rejected, _) = sides
            if chosen is None or rejected is None:
                self.notes.num_untrained += 1
            elif all(self._fits(cast(Trajectory, side), record) for side, record in sides):
                yield Pair(chosen=chosen, rejected=replace(rejected, index=1), margin=1.0)
            else:
                self.notes.num_long += 1

    def trajectory(self, record: Record) -> Trajectory | None:
        """Return `record` as a trajectory; None where no answer is to be trained.

        Raises:
            DataError: it calls a tool that the environment, or its list of tools, has not, unless the rules take it.
        """
        brief, said = self._split_opening(record)
        said = with_opening(said, self.rules.opening(record))
        trained = choose_trained(said, self.rules.train_on)
        if not self.rules.takes_unlisted:
            own = [each for each, is_on in zip(said, trained, strict=True) if is_on]
            check_calls(record, own, brief.tools, self.place)
        turns, rest = self._turns(self._open(brief), said, trained)
        turns = without(turns, {number for number, (_, is_on) in enumerate(turns) if not is_on})
        if not turns:
            return None
        first = len(record.said) - len(said)
        answers = [first + place for place, is_on in enumerate(trained) if is_on][-len(turns) :]
        own = conversation_data(record.messages, record.tools, [s.is_trained for s in record.said], answers)
        task = replace(brief.task, data={**brief.task.data, **own, FIELDS: plain_fields(record)})
        reward = record.fields.get("reward")
        is_success = record.fields.get("is_success", True)
        value = float(reward) if isinstance(reward, int | float) else float(is_success is not False)
        return Trajectory(
            task=task,
            turns=turns,
            outcome=Score(value=value, is_success=is_success is not False),
            stop=Stop.TERMINATED,
            seed=0,
            group=task.id,
            index=0,
            final_observation=tuple(part for message in rest for part in message.content),
        )

    def turns(self, record: Record) -> tuple[Turn, ...]:
        """Return a turn for every answer of `record`, to be trained or not; whether its calls fit is not asked."""
        brief, said = self._split_opening(record)
        turns, _ = self._turns(self._open(brief), said, [True] * len(said))
        return tuple(turn for turn, _ in turns)

    def _split_opening(self, record: Record) -> tuple[Brief, list[RecordMessage]]:
        """Return what the agent of `record` is told, and the messages after that."""
        said = list(record.said)
        system = as_text(said.pop(0).message.content) if said[0].message.role == "system" else ""
        tools = record.tools
        if self.place is not None:
            told = self.place.find_prompt(record)
            tools, system = told.tools, system or told.system
            if record.tools and not same_tools(record.tools, tools):
                self.notes.other_tools[record.place] += 1
        task = Task(
            id=f"{record.file}:{record.line}",
            environment=self.place.name if self.place else TRANSCRIPTS,
            seed=0,
            data={"file": record.file, "line": record.line, **read_origin(record)},
        )
        return Brief(task=task, instructions=system, tools=tools), said

    def _open(self, brief: Brief) -> ChatSession:
        """Return the session that `brief` opens in the environment's harness, or in that of tool calls without one.

        Raises:
            UsageError: the harness holds no plain conversation.
        """
        agent = JsonTools(self.chat) if self.place is None else self.place.agent
        session = agent.open(brief)
        if not isinstance(session, ChatSession):
            raise UsageError(
                f"demonstrations through the agent {type(agent).__name__}: got conversations of others, which it would "
                "rewrite; take tools, react, code, choice or text without wrappers, or a run's episodes"
            )
        return session

    def _turns(
        self, session: ChatSession, said: Sequence[RecordMessage], trained: Sequence[bool]
    ) -> tuple[list[tuple[Turn, bool]], list[Message]]:
        """Return a turn for each answer, with whether it is trained, and the messages after the last answer."""
        turns: list[tuple[Turn, bool]] = []
        unseen: list[Message] = []
        for each, is_on in zip(said, trained, strict=True):
            message = each.message
            is_opening = not turns and not unseen and not session.has_unsent
            if message.role != "assistant" or is_opening:
                unseen.append(message)
                continue
            prompt = session.show(unseen)
            written = session.say(message)
            self.notes.lost.update(written.lost)
            completion = Completion(token_ids=written.token_ids, logprobs=(), stop="stop")
            action = session.read(completion)
            if message.tool_calls and action.error is None:
                action = Action(text=action.text, tool_calls=message.tool_calls)
            turn = Turn(
                observation=observation(unseen),
                prompt_ids=prompt.token_ids,
                completion=completion,
                action=action,
                starts_segment=prompt.starts_segment,
            )
            turns.append((turn, is_on))
            unseen = []
        return turns, unseen

    def _fits(self, trajectory: Trajectory, record: Record) -> bool:
        """Whether the streams of `trajectory` are no longer than the limit.

        Raises:
            DataError: one is, and the rules say so.
        """
        longest, limit = longest_stream(trajectory), self.rules.max_tokens
        if limit is None or longest <= limit:
            return True
        if self.rules.overlong == "error":
            flag = f"--{self.rules.limit.replace('_', '-')}"
            more = f"raise {flag}" if " " not in flag else "take a model with a longer one (--model)"
            raise DataError(
                f"{record.place}: got a conversation of {longest:,} tokens, and {self.rules.limit} is {limit:,}; "
                f"{more}, split the conversation, or leave out all such with --overlong drop"
            )
        return False


def with_opening(said: list[RecordMessage], words: str) -> list[RecordMessage]:
    """Return `said` with `words` behind the last message before the first answer."""
    first = next((at for at, each in enumerate(said) if at and each.message.role == "assistant"), 0)
    if not words or not first:
        return said
    each = said[first - 1]
    message = replace(each.message, content=as_content(with_words(each.message.content, words)))
    return [*said[: first - 1], replace(each, message=message), *said[first:]]


def observation(messages: Sequence[Message]) -> tuple[Content, ...]:
    """Return what an agent saw in `messages`: of several results one for each call, in their order."""
    is_apart = sum(message.role == "tool" for message in messages) > 1
    found: list[Content] = []
    for message in messages:
        text = as_text(message.content)
        is_result = is_apart and message.role == "tool"
        call = sum(isinstance(part, CallResult) for part in found)
        found.append(CallResult(text=text, call=call) if is_result else Text(text=text))
    return tuple(found)


def choose_trained(said: Sequence[RecordMessage], train_on: TrainOn) -> list[bool]:
    """Return of each message whether it is trained: never one that is not the assistant's, or is tagged against."""
    answers = [each.message.role == "assistant" for each in said]
    last = max((place for place, is_answer in enumerate(answers) if is_answer), default=-1)
    return [
        is_answer
        and each.is_trained is not False
        and (train_on != "last" or place == last)
        and (train_on != "tagged" or each.is_trained is True)
        for place, (each, is_answer) in enumerate(zip(said, answers, strict=True))
    ]


def without(turns: Sequence[tuple[Turn, bool]], left_out: set[int]) -> tuple[Turn, ...]:
    """Return the turns that are trained; those in `left_out` are given: tokens of the next turn's prompt.

    Where the next turn starts a new stream, its prompt holds them already; after the last one they go.
    """
    kept: list[Turn] = []
    ids: tuple[int, ...] = ()
    starts = False
    for number, (turn, _) in enumerate(turns):
        if turn.starts_segment:
            ids, starts = (), True
        ids = (*ids, *turn.prompt_ids)
        if number in left_out:
            ids = (*ids, *turn.completion.token_ids)
            continue
        kept.append(replace(turn, prompt_ids=ids, starts_segment=starts))
        ids, starts = (), False
    return tuple(kept)


def train_only(trajectory: Trajectory, train_on: TrainOn) -> Trajectory | None:
    """Return `trajectory`, which was played here, with the answers that `train_on` leaves out as context.

    Turns whose action could not be read are context, too. None where nothing is left, as with "tagged", because an
    episode has no tags.
    """
    good = [turn.action.error is None for turn in trajectory.turns]
    last = max((place for place, is_good in enumerate(good) if is_good), default=-1)
    left_out = {
        place
        for place, is_good in enumerate(good)
        if not is_good or train_on == "tagged" or (train_on == "last" and place != last)
    }
    turns = without([(turn, True) for turn in trajectory.turns], left_out)
    return replace(trajectory, turns=turns) if turns else None


def check_calls(
    record: Record, said: Iterable[RecordMessage], tools: Sequence[ToolSpec], place: Place | None
) -> None:
    """Raise where an answer that is to be trained calls a tool that is not there.

    Raises:
        DataError: naming the tool, its place and the cure.
    """
    for tool in unknown_tools(said, tools, is_closed=place is not None):
        where = f"the environment {place.name}" if place else "the record's own list"
        names = ", ".join(known.name for known in tools) or "none"
        raise DataError(
            f"{record.place}: got a call of the tool {tool!r}, and the tools of {where} are {names}; call one of them, "
            "tag the message with weight 0, or leave the line out"
        )


def unknown_tools(said: Iterable[RecordMessage], tools: Sequence[ToolSpec], *, is_closed: bool) -> list[str]:
    """Return the tools that `said` calls and that are not in `tools`; with no tools at all only where `is_closed`."""
    if not tools and not is_closed:
        return []
    known = {tool.name for tool in tools}
    calls = (call.name for each in said for call in each.message.tool_calls)
    return [name for name in dict.fromkeys(calls) if name not in known]


def same_tools(left: Sequence[ToolSpec], right: Sequence[ToolSpec]) -> bool:
    """Whether two lists of tools have the same names and the same arguments, whatever their descriptions."""

    def shape(tools: Sequence[ToolSpec]) -> dict[str, set[str]]:
        return {
            tool.name: set(cast("dict[str, Any]", tool.parameters.get("properties", {}))) for tool in tools
        }

    return shape(left) == shape(right)


def longest_stream(trajectory: Trajectory) -> int:
    """Return the tokens of the longest stream of `trajectory`."""
    longest = length = 0
    for turn in trajectory.turns:
        length = (
            (0 if turn.starts_segment else length) + len(turn.prompt_ids) + len(turn.completion.token_ids)
        )
        longest = max(longest, length)
    return longest


def plain_fields(record: Record) -> dict[str, Any]:
    """Return the texts, numbers and truth values that stand beside the messages of `record`."""
    return {key: value for key, value in record.fields.items() if isinstance(value, str | int | float)}


def read_origin(record: Record) -> dict[str, str]:
    """Return what a record says of its origin: the id of its task, or its own, and the episodes that it was made of."""
    known = {key: str(record.fields[key]) for key in ("task", "id") if record.fields.get(key) is not None}
    sources = record.fields.get("sources")
    if isinstance(sources, list) and sources:
        known["sources"] = ", ".join(map(str, cast("list[object]", sources)))
    return known
