"""Reflexion (arXiv 2303.11366): lessons of failed attempts stand in the prompt of the next attempt at a task.

The lessons are kept outside of episodes, by task, as a value: an attempt reads them and never writes them, so that
the attempts of a round do not depend on each other's order. `quintain.rollout.trials` runs the rounds. Only a failed
attempt is reflected on, and at most the newest `MAX_LESSONS` are shown. The last attempt itself may stand in the
prompt, beside lessons or without, and an attempt in which nothing changes may be ended (`count_repeats`).

Differences to the paper: there an attempt ends where an action and its reply come more than three times in a row, in
its code where an action comes twice; here after as many as are asked for, none by default. Whether an attempt failed
is the environment's to say; the agent writes no tests of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from quintain.agents.deliberation import describe_action
from quintain.agents.protocol import Agent, Brief, Prompt, Session
from quintain.engines.protocol import Sampling
from quintain.text.chat import Chat
from quintain.types import NOTHING, Message, Observation, Task, Trajectory, Turn, as_content, as_text

MAX_LESSONS = 3
"""As in the paper's code, for acting and for reflecting."""
MAX_TRANSCRIPT = 4000
"""Characters of the last attempt that stand in the prompt of the next; older lines are left out."""
MAX_CALL = 300
"""Characters of a call that was wrong and of what is said of it."""
FAILED = "Calls that failed before, and why:"
REFLECT = (
    "You failed at the task below. In a few sentences, say why, and what to do differently the next time. "
    "Do not repeat what happened."
)


@dataclass(frozen=True, slots=True)
class Lessons:
    """What was learned, by task id: ``Lessons({"keydoor/train/7": ("Take the red key first.",)})``."""

    by_task: Mapping[str, tuple[str, ...]] = NOTHING

    def of(self, task_id: str) -> tuple[str, ...]:
        """Return the lessons of a task, oldest first."""
        return self.by_task.get(task_id, ())

    def add(
        self, task: Task, lesson: str, max_lessons: int = MAX_LESSONS, *, may_outlive: bool = True
    ) -> Lessons:
        """Return these lessons and one more; of each task the newest `max_lessons` are kept.

        One of a held-out task is added only where the lessons do not outlive (`may_outlive`) the rounds of attempts
        that they are for.
        """
        if not lesson.strip() or (may_outlive and task.is_held_out):
            return self
        kept = (*self.of(task.id), " ".join(lesson.split()))[-max_lessons:]
        return Lessons({**self.by_task, task.id: kept})


@dataclass(frozen=True, slots=True)
class Reflexion:
    """A harness that is told the lessons of its task: ``Reflexion(ReAct(chat), lessons)``."""

    agent: Agent
    lessons: Lessons = Lessons()
    attempts: Mapping[str, Trajectory] = NOTHING
    """task id → the attempt that it is shown, the last one"""
    calls: Lessons = Lessons()
    """what was wrong with calls of earlier attempts, as `find_failed_calls` says it"""

    def open(self, brief: Brief) -> Session:
        """See `Agent.open`."""
        lessons, attempt = self.lessons.of(brief.task.id), self.attempts.get(brief.task.id)
        told = [lessons_text(lessons)] if lessons else []
        if calls := self.calls.of(brief.task.id):
            told.append("\n".join([FAILED, *(f"- {call}" for call in calls)]))
        told += [] if attempt is None else [attempt_text(attempt)]
        if not told:
            return self.agent.open(brief)
        return self.agent.open(replace(brief, instructions="\n\n".join((brief.instructions, *told)).strip()))


def find_failed_calls(trajectory: Trajectory) -> tuple[str, ...]:
    """Return the calls of `trajectory` that were not carried out since they were wrong, each once, with the error.

    The failure of a tool is not the agent's, and says nothing of its calls.
    """
    replies = [
        *(as_text(turn.observation) for turn in trajectory.turns[1:]),
        as_text(trajectory.final_observation),
    ]
    found = [
        f"{describe_action(turn.action)}: {reply}"
        for turn, reply in zip(trajectory.turns, replies, strict=True)
        if any(error.cause == "invalid_call" for error in turn.tool_errors)
    ]
    return tuple(dict.fromkeys(" ".join(each.split())[:MAX_CALL] for each in found))


def count_repeats(turns: Sequence[Turn], reply: Observation) -> int:
    """Return how often the last action, with the same reply, was taken in a row; `reply` is that to the last turn.

    Example: 3 after ``left → wall, left → wall, left → wall``. What an agent says to itself is left out.
    """
    count, wanted = 0, None
    for turn in reversed(turns):
        if turn.is_internal:
            continue
        move = describe_action(turn.action), as_content(reply)
        if wanted is not None and move != wanted:
            break
        wanted, count, reply = move, count + 1, turn.observation
    return count


def attempt_text(attempt: Trajectory) -> str:
    """Return the failed `attempt` as the next prompt shows it: its last lines, within `MAX_TRANSCRIPT`."""
    lines = transcript(attempt)
    while len(lines) > 1 and sum(len(line) + 1 for line in lines) > MAX_TRANSCRIPT:
        lines = lines[1:]
    return "\n".join(["Your last attempt, which failed:", *lines])


def lessons_text(lessons: tuple[str, ...]) -> str:
    """Return `lessons` as the prompt shows them."""
    return "\n".join(["What you learned from failed attempts:", *(f"- {lesson}" for lesson in lessons)])


def reflection_prompt(
    chat: Chat, trajectory: Trajectory, lessons: tuple[str, ...], sampling: Sampling, *, max_tokens: int
) -> Prompt:
    """Return the prompt that asks why `trajectory` failed; its oldest turns are left out where it is too long.

    The task stays: its prompt and the first observation.
    """
    task, (first, *lines) = trajectory.task.prompt, transcript(trajectory)
    while True:
        parts = (
            [lessons_text(lessons)] if lessons else [],
            [f"Task: {task}"] if task else [],
            [first],
            lines,
        )
        told = "\n".join(line for part in parts for line in part)
        messages = [
            Message(role="system", content=as_content(REFLECT)),
            Message(role="user", content=as_content(told)),
        ]
        ids = chat.conversation().prompt(messages).token_ids
        if len(ids) <= max_tokens or not lines:
            return Prompt(token_ids=ids, starts_segment=True, sampling=sampling, role="reflection")
        lines = lines[max(1, len(lines) // 4) :]


def transcript(trajectory: Trajectory) -> list[str]:
    """Return what happened in `trajectory`, two lines a turn."""
    turns = [turn for turn in trajectory.turns if not turn.is_internal]
    lines = [
        line
        for turn in turns
        for line in (f"Observation: {as_text(turn.observation)}", f"Action: {describe_action(turn.action)}")
    ]
    return [*lines, f"Observation: {as_text(trajectory.final_observation)}"]
