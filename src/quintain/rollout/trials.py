"""Rounds of attempts at the same tasks, with a lesson after every failed one: the loop of Reflexion.

Each round attempts the tasks that are not solved yet, all with the lessons of the rounds before; then every scored
attempt that failed is reflected on, in the order of the tasks. A `Failure` is not the agent's, so it is attempted again
without a lesson. The four strategies of the paper: an attempt is told nothing, the last attempt, lessons, or both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from quintain.agents.reflexion import Lessons, Reflexion, find_failed_calls, reflection_prompt
from quintain.engines.protocol import Engine, Request, Sampling
from quintain.rollout.collect import Rollout
from quintain.rollout.request import Options
from quintain.rollout.samplers import sample_all
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Failure, Task, Trajectory, Turn, derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One round: the attempts in the order of their tasks, and the reflections on those that failed."""

    trajectories: tuple[Trajectory, ...]
    reflections: dict[str, Turn] = field(default_factory=dict[str, Turn])
    """task id → the turn in which a lesson was sampled, ready to be trained on"""
    lessons: Lessons = field(default_factory=Lessons)
    """What is known after the round and may be kept: nothing of held-out tasks, whose lessons end with the rounds."""

    def with_lessons(self, before: Mapping[str, Turn]) -> list[Trajectory]:
        """Return its attempts, each behind the turn in which its newest lesson was written, if one was.

        `before` are the reflections of the round before: an attempt that is solved speaks for its lesson, and whoever
        imitates it imitates both.
        """
        found = list[Trajectory]()
        for attempt in self.trajectories:
            lesson = before.get(attempt.task.id)
            found.append(attempt if lesson is None else replace(attempt, turns=(lesson, *attempt.turns)))
        return found

    @property
    def solved(self) -> frozenset[str]:
        """The ids of the tasks that were solved in this round."""
        return frozenset(t.task.id for t in self.trajectories if t.is_success)


def trials(
    rollout: Rollout,
    chat: Chat,
    tasks: Sequence[Task],
    *,
    rounds: int = 3,
    seed: int,
    max_tokens: int = 128,
    lessons: Lessons | None = None,
    reflects: bool = True,
    shows_attempt: bool = False,
    shows_errors: bool = False,
    max_repeats: int | None = None,
    on_episode: Callable[[int, Trajectory], None] | None = None,
    known: Callable[[int], Iterable[Trajectory]] = lambda _round: (),
) -> list[Trial]:
    """Attempt `tasks` in up to `rounds` rounds and return these; solved tasks are not attempted again.

    `max_tokens` bounds a reflection. In every round the rollout's agent is wrapped in `Reflexion`, and told
    nothing unless it `reflects`; with `shows_attempt` the last attempt stands in its prompt, with `shows_errors` the
    newest three wrong calls of all of them with their errors, which no model writes. An attempt whose action has the
    same reply more than `max_repeats` times in a row ends as failed. Report success by round: each attempt after the
    first knows from the score that the one before failed. `on_episode` is told the round and each of its episodes as it
    ends; what is `known` of a round is not played again.
    """
    assert rollout.engine is not None, "reflections are sampled from an engine"
    agent, kept = rollout.agent, lessons or Lessons()
    told, shown, wrong = kept, dict[str, Trajectory](), Lessons()
    limits = rollout.limits if max_repeats is None else replace(rollout.limits, max_repeats=max_repeats)
    left, done = list(tasks), list[Trial]()
    for number in range(rounds):
        if not left:
            break
        groups = rollout.groups(
            left,
            size=1,
            seed=derive_seed(seed, "trial", number),
            options=Options(agent=Reflexion(agent, told, dict(shown), wrong), limits=limits),
            on_episode=None if on_episode is None else partial(on_episode, number),
            known=known(number),
        )
        trial = tuple(group.trajectories[0] for group in groups)
        reflections = (
            {}
            if not reflects
            else reflect(
                rollout.engine,
                chat,
                trial,
                told,
                seed=derive_seed(seed, "reflect", number),
                max_tokens=max_tokens,
                patience=rollout.limits.reply_timeout,
            )
        )
        for attempt in trial:
            if shows_attempt and not attempt.is_success and not isinstance(attempt.outcome, Failure):
                shown[attempt.task.id] = attempt
            for call in find_failed_calls(attempt) if shows_errors else ():
                wrong = wrong.add(attempt.task, call, may_outlive=False)
            if attempt.task.id in reflections:
                lesson = reflections[attempt.task.id].action.text
                kept = kept.add(attempt.task, lesson)
                told = told.add(attempt.task, lesson, may_outlive=False)
        done.append(Trial(trajectories=trial, reflections=reflections, lessons=kept))
        left = [task for task, attempt in zip(left, trial, strict=True) if not attempt.is_success]
    return done


def reflect(
    engine: Engine,
    chat: Chat,
    trajectories: Sequence[Trajectory],
    lessons: Lessons,
    *,
    seed: int,
    max_tokens: int,
    patience: float = 600.0,
) -> dict[str, Turn]:
    """Return what is sampled about each failed one of `trajectories`, by task id.

    A reflection that the engine fails to give is left out.

    Raises:
        EngineFault: the engine says nothing for `patience` seconds.
    """
    sampling = Sampling(max_tokens=max_tokens, stop_ids=chat.stop_ids)
    asked: dict[str, tuple[Trajectory, Request]] = {}
    for trajectory in trajectories:
        if isinstance(trajectory.outcome, Failure) or trajectory.is_success:
            continue
        task_id = trajectory.task.id
        prompt = reflection_prompt(
            chat, trajectory, lessons.of(task_id), sampling, max_tokens=engine.max_length - max_tokens
        )
        request = Request(
            session=f"reflection/{task_id}",
            prompt_ids=prompt.token_ids,
            seed=derive_seed(seed, task_id),
            sampling=sampling,
        )
        asked[task_id] = trajectory, request
    replies = sample_all(engine, [request for _, request in asked.values()], patience=patience)
    return {
        task_id: _turn(chat, trajectory, request.prompt_ids, reply)
        for task_id, (trajectory, request) in asked.items()
        if isinstance(reply := replies[request.session], Completion)
    }


def _turn(chat: Chat, trajectory: Trajectory, prompt_ids: tuple[int, ...], completion: Completion) -> Turn:
    """Return the turn in which `completion` reflects on `trajectory`."""
    return Turn(
        seat="agent/reflection",
        observation=trajectory.final_observation,
        prompt_ids=prompt_ids,
        completion=completion,
        action=Action(text=chat.text(completion.token_ids).strip()),
        starts_segment=True,
    )
