"""Failed attempts teach the next ones; solved tasks and failures of the machinery teach nothing."""

import pytest

from quintain.agents.harness import PlainText
from quintain.agents.reflexion import REFLECT, Lessons
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import Environment
from quintain.errors import EngineFault
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.trials import Trial, reflect, trials
from quintain.text.chat import Chat
from quintain.types import Action, Failure, Observation, Split, StepResult, Stop, Task, ToolSpec


class Number(Environment):
    """Say the number."""

    max_turns = 2

    def reset(self, task: Task) -> Observation:
        self.wanted = task.id.rpartition("/")[2]
        return "Which?"

    def step(self, action: Action) -> StepResult:
        is_right = action.text == self.wanted
        return StepResult(
            observation="yes" if is_right else f"not {action.text}",
            reward=float(is_right),
            is_terminated=is_right,
            is_success=is_right,
        )


class Learner:
    """Says the next number after the largest that its lessons rule out, and learns that it was wrong."""

    def __init__(self, chat: Chat, broken: frozenset[int] = frozenset()) -> None:
        self.chat, self.broken = chat, broken
        self.reflected: list[str] = []
        self.told: list[str] = []

    def __call__(self, request: Request, stream: tuple[int, ...]) -> tuple[int, ...] | Failure:
        text = self.chat.encoder.decode(stream)
        if REFLECT in text:
            self.reflected.append(text)
            if len(self.reflected) in self.broken:
                return Failure(owner="engine", kind="down", message="no reply")
            return self.chat.write(f"It is not {text.rpartition('not ')[2][:1]}")
        if text.count("<|assistant|>") == 1:
            self.told.append(text)
        known = [int(part[:1]) for part in text.split("not ")[1:]]
        return self.chat.write(str(max(known, default=-1) + 1))


def run(
    chat: Chat,
    learner: Learner,
    *,
    count: int = 4,
    max_length: int = 4000,
    rounds: int = 3,
    split: Split = "train",
    shows_attempt: bool = False,
    max_repeats: int | None = None,
    max_turns: int = 1,
) -> list[Trial]:
    agent = PlainText(chat, max_tokens=32)
    rollout = Rollout(
        agent, Number, Scripted(learner, max_length=max_length), limits=Limits(max_turns=max_turns)
    )
    found = trials(
        rollout,
        chat,
        [Number().task(split, n) for n in range(count)],
        rounds=rounds,
        seed=1,
        shows_attempt=shows_attempt,
        max_repeats=max_repeats,
    )
    assert rollout.agent is agent
    return found


def test_success_grows_by_round_and_solved_tasks_are_left_alone(chat: Chat) -> None:
    learner = Learner(chat)
    found = run(chat, learner)
    assert [sorted(trial.solved) for trial in found] == [[f"number/train/{n}"] for n in range(3)]
    assert [len(trial.trajectories) for trial in found] == [4, 3, 2]
    assert found[0].lessons.of("number/train/2") == ("It is not 0",)
    assert found[-1].lessons.of("number/train/3") == ("It is not 0", "It is not 1", "It is not 2")
    assert found[-1].lessons.of("number/train/0") == ()
    turn = found[0].reflections["number/train/3"]
    assert (turn.seat, turn.action.text, turn.starts_segment) == ("agent/reflection", "It is not 0", True)
    assert "Observation: Which?\nAction: 0\nObservation: not 0" in learner.reflected[0]
    assert learner.told[4].count("- It is not 0") == 1
    again = run(chat, Learner(chat))
    assert [trial.lessons for trial in again] == [trial.lessons for trial in found]


def test_rounds_end_when_everything_is_solved(chat: Chat) -> None:
    assert len(run(chat, Learner(chat), count=2, rounds=9)) == 2


def test_lessons_of_held_out_tasks_end_with_the_rounds(chat: Chat) -> None:
    learned, kept = run(chat, Learner(chat)), run(chat, Learner(chat), split="eval")
    assert [len(trial.solved) for trial in kept] == [len(trial.solved) for trial in learned] == [1, 1, 1]
    assert learned[-1].lessons.by_task and all(trial.lessons == Lessons() for trial in kept)


def test_a_reflection_that_fails_is_left_out(chat: Chat) -> None:
    found = run(chat, Learner(chat, broken=frozenset({1})), rounds=1)
    assert sorted(found[0].reflections) == ["number/train/2", "number/train/3"]
    assert found[0].lessons.by_task == dict.fromkeys(("number/train/2", "number/train/3"), ("It is not 0",))


def test_a_long_attempt_is_cut_at_its_beginning(chat: Chat) -> None:
    learner = Learner(chat)
    run(chat, learner, count=2, rounds=1, max_length=128 + len(chat.encoder.plain(REFLECT)) + 45)
    assert "Observation: Which?\nObservation: not 0" in learner.reflected[0], (
        "the task stays, the oldest turn goes"
    )
    assert "Action: 0" not in learner.reflected[0]


class Mute(Scripted):
    """Loses what is asked about the second task."""

    def __init__(self, chat: Chat) -> None:
        super().__init__(Learner(chat))
        self.released: list[str] = []

    def submit(self, request: Request) -> None:
        if not request.session.endswith("train/2"):
            super().submit(request)

    def release(self, session: str) -> None:
        self.released.append(session)
        super().release(session)


def test_a_reflection_that_never_comes_is_the_engines_fault_with_its_name(chat: Chat) -> None:
    attempts = run(chat, Learner(chat), rounds=1)[0].trajectories
    engine = Mute(chat)
    with pytest.raises(
        EngineFault, match=r"^1 requests to the engine Mute: got no reply .* 'reflection/number/"
    ):
        reflect(engine, chat, attempts, Lessons(), seed=1, max_tokens=64, patience=0.0)
    assert len(engine.released) == 3


def test_the_last_attempt_alone_is_shown_where_it_is_asked_for(chat: Chat) -> None:
    learner = Learner(chat)
    run(chat, learner, count=3, shows_attempt=True)
    first, second, third = learner.told[0], learner.told[3], learner.told[5]
    assert "last attempt" not in first
    assert "Your last attempt, which failed:\nObservation: Which?\nAction: 0\nObservation: not 0" in second
    assert third.count("Your last attempt") == 1 and "Action: 1\n" in third and "Action: 0\n" not in third


class Stubborn(Number):
    """Say the number, as often as you like."""

    max_turns = 9


@pytest.mark.parametrize(("most", "num"), [(None, 9), (1, 2), (3, 4)])
def test_an_attempt_in_which_nothing_changes_is_cut_and_failed(
    chat: Chat, most: int | None, num: int
) -> None:
    engine = Scripted(lambda request, stream: chat.write("7"))
    rollout = Rollout(PlainText(chat), Stubborn, engine)
    (trial,) = trials(
        rollout, chat, [Stubborn().task("train", 0)], rounds=1, seed=0, max_repeats=most, reflects=False
    )
    (attempt,) = trial.trajectories
    assert len(attempt.turns) == num and not attempt.is_success
    assert attempt.stop == (Stop.MAX_TURNS if most is None else Stop.CUT)


def test_an_attempt_begins_with_the_lesson_that_it_was_told(chat: Chat) -> None:
    found = run(chat, Learner(chat), count=3)
    told = found[1].with_lessons(found[0].reflections)
    assert [len(attempt.turns) for attempt in told] == [2, 2]
    lesson, act = told[0].turns
    assert (lesson.seat, lesson.is_internal, act.is_internal) == ("agent/reflection", True, False)
    assert lesson.starts_segment and act.starts_segment and told[0].is_success
    assert found[0].with_lessons({}) == list(found[0].trajectories)


class Changing(Number):
    """A tool of it takes another argument in each episode."""

    num_resets = 0

    def reset(self, task: Task) -> Observation:
        Changing.num_resets += 1
        return super().reset(task)

    def tools(self) -> tuple[ToolSpec, ...]:
        about = {"type": "object", "properties": {f"x{Changing.num_resets}": {"type": "integer"}}}
        return (ToolSpec(name="say", description="Say it.", parameters=about),)


def test_a_tool_that_changes_its_schema_between_trials_breaks_the_episode(chat: Chat) -> None:
    for has_same_tools in (True, False):
        limits = Limits(has_same_tools=has_same_tools, max_failure_share=1.0, attempts=1)
        rollout = Rollout(PlainText(chat), Changing, Scripted(lambda *_: chat.write("3")), limits=limits)
        (group,) = rollout.groups([Number().task("train", 3)], size=2, seed=0)
        broken = [t.outcome for t in group.trajectories if isinstance(t.outcome, Failure)]
        assert len(broken) == int(has_same_tools)
        if broken:
            assert broken[0].owner == "environment" and "\n" not in broken[0].message
            assert "got others than in the episode before (say); trials of one task" in broken[0].message
