"""Actions that are taken back: by whom, at what price, how often they are right, and what the agent is shown."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from tests.search.conftest import list_contexts, play_words

from quintain.data.searched import follow_found, split_head
from quintain.environments.protocol import Environment, advance, begin
from quintain.errors import UsageError
from quintain.search.backtracking import INSTEAD, UNDONE, Backtracked, BacktrackWorld, refuses
from quintain.text.chat import Chat
from quintain.types import Action, Score, StepResult, Task, Trajectory

TASK = Task(id="stairs/eval/0", environment="stairs", seed=0, split="eval")
AGENT: Any = None


class Stairs(Environment):
    """Go up four stairs. Act: up, leap (two at once), side (a dead end), stay, or jump, which cannot be undone."""

    name = "stairs"
    max_turns = 12

    def __init__(self, steps: int = 4) -> None:
        self.steps, self.place, self.has_jumped = steps, "0", False

    def reset(self, task: Task) -> str:
        self.place, self.has_jumped = "0", False
        return self.place

    def step(self, action: Action) -> StepResult:
        if action.text not in ("up", "leap", "side", "stay", "jump"):
            return StepResult(observation=self.place, is_valid=False)
        self.has_jumped = action.text == "jump"
        if action.text in ("up", "leap"):
            self.place = str(int(self.place) + len(action.text) // 2) if self.place.isdigit() else self.place
        elif action.text != "stay":
            self.place = f"beside {self.place}"
        is_up = self.place == str(self.steps)
        return StepResult(observation=self.place, reward=float(is_up), is_terminated=is_up, is_success=is_up)

    def snapshot(self) -> str:
        return self.place

    def restore(self, state: str) -> None:
        self.place = state

    def can_go_back(self) -> bool:
        return not self.has_jumped

    def legal_actions(self) -> tuple[str, ...]:
        return ("up", "side")

    def expert_action(self) -> Action:
        return Action(text="up")

    def mistaken_action(self, rng: Random) -> Action:
        return Action(text="side")

    def progress(self) -> float:
        return float(self.place) / self.steps if self.place.isdigit() else 0.0


def go(
    world: BacktrackWorld, act: Callable[[str], str], judge: Callable[[str], str] = lambda _: "yes"
) -> list[StepResult]:
    """Return what was answered until the end, to who does what `act` and says what `judge` says of what is seen."""
    found: list[StepResult] = []
    observation = begin(world, TASK)
    while not found or not found[-1].is_over:
        what, _, shown = split_head(observation)
        found.append(advance(world, Action(text=(judge if what == "judge" else act)(str(shown)))))
        observation = found[-1].observation
    return found


def say(*words: str) -> Callable[[str], str]:
    left = list(words)
    return lambda _: left.pop(0)


def knows(shown: str) -> str:
    return "no" if "beside" in shown else "yes"


def world_of(retries: int, inner: Environment | None = None) -> BacktrackWorld:
    return BacktrackWorld(inner or Stairs(), Backtracked(AGENT, AGENT, retries=retries))


def test_a_step_that_is_judged_wrong_is_taken_back_and_told_of() -> None:
    found = go(world_of(2), say("side", "up", "side", "up", "up", "up"), knows)
    shown = [split_head(result.observation) for result in found]
    assert shown[0] == ("judge", (0,), "beside 0")
    assert shown[1] == ("", (), f"0\n\n{UNDONE}\nside → beside 0\n{INSTEAD}")
    assert shown[2] == ("judge", (2,), "1") and shown[3] == ("", (2,), "1"), "a fresh state tells of nothing"
    assert shown[5] == ("", (2,), f"1\n\n{UNDONE}\nside → beside 1\n{INSTEAD}"), (
        "of what was tried here alone"
    )
    assert shown[-1] == ("end", (2, 6, 8, 10), "4")
    assert [result.reward for result in found] == [0.0] * 10 + [1.0] and found[-1].is_success


def test_the_verifier_needs_no_judge_and_the_last_attempt_is_kept_whatever_it_is() -> None:
    found = go(world_of(2), say("fly", "stay", "side", *["up"] * 9), say(*["yes"] * 20))
    shown = [split_head(result.observation) for result in found]
    assert [what for what, _, _ in shown[:3]] == ["", "", ""], (
        "unreadable; unchanged; the third is gone on from"
    )
    assert not found[0].is_valid and found[1].is_valid
    assert "fly → 0\nstay → 0" in str(shown[1][2]) and shown[2][1] == (2,)
    assert found[-1].is_truncated and not found[-1].is_success


def test_what_cannot_be_undone_and_the_end_are_never_taken_back() -> None:
    found = go(world_of(2), say("jump", *["side"] * 99), say(*["no"] * 99))
    assert split_head(found[0].observation)[:2] == ("", (0,)), (
        "nobody was asked, and it stands beside the stairs"
    )
    alone = go(world_of(2, Stairs(steps=1)), say("up"), say())
    assert len(alone) == 1 and alone[0].is_terminated and alone[0].reward == 1.0


def test_each_attempt_is_a_turn_of_the_environment() -> None:
    inner = Stairs()
    inner.max_turns = 4
    found = go(world_of(9, inner), say(*["side"] * 4), knows)
    assert [split_head(result.observation)[0] for result in found] == ["judge", ""] * 3 + ["judge", "end"]
    assert found[-1].is_truncated and split_head(found[-1].observation)[1] == ()
    assert world_of(9, inner).max_turns == 8, "a verdict of each"


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_right_judge_solves_a_step_as_often_as_the_formula_says(retries: int) -> None:
    """1 - p^(k+1): .8, .96 and .992 at p = .2, within four standard errors of 2,000 steps."""
    rng, solved, num = Random(7), 0, 2000
    inner = Stairs(steps=1)
    world = world_of(retries, inner)
    for _ in range(num):
        observation, is_solved = begin(world, TASK), False
        for _ in range(2 * retries + 1):
            what, _, shown = split_head(observation)
            text = knows(str(shown)) if what == "judge" else "side" if rng.random() < 0.2 else "up"
            result = advance(world, Action(text=text))
            observation, is_solved = result.observation, result.is_success is True
            if result.is_over:
                break
        solved += is_solved
    wanted = 1 - 0.2 ** (retries + 1)
    assert abs(solved / num - wanted) < 4 * (wanted * (1 - wanted) / num) ** 0.5


def test_the_expert_judges_by_what_it_would_have_done_or_by_what_is_done() -> None:
    world = world_of(2)
    begin(world, TASK)
    assert world.legal_actions() == ("up", "side") and world.expert_action().text == "up"
    for action, verdict in (("side", "no"), ("leap", "yes")):
        place = advance(world, Action(text=action)).observation
        assert world.legal_actions() == ("yes", "no")
        assert world.expert_action().text == verdict == world.mistaken_action(Random(0)).text
        assert isinstance(world.inner, Stairs) and split_head(place)[2] == world.inner.place, (
            "it changes nothing"
        )
        advance(world, Action(text=verdict))
    assert split_head(advance(world, Action(text="up")).observation)[1:] == ((2, 4), "3")


def play(chat: Chat, spec: str, words: Sequence[str]) -> Trajectory:
    return play_words(Stairs, TASK, chat, spec, words)


@pytest.fixture
def small_chat(tokenizer: Any) -> Chat:
    return Chat(tokenizer)


def test_a_judge_that_always_consents_is_the_generator_token_for_token(small_chat: Chat) -> None:
    judged = play(
        small_chat, "backtracked+text", ["up", "yes", "side", "yes", "up", "yes", *["stay", "yes"] * 20]
    )
    plain = play(small_chat, "text", ["up", "side", "up", *["stay"] * 20])
    assert list_contexts(judged)[0:5:2] == list_contexts(plain)[:3]
    assert "Did that help" in small_chat.tokenizer.decode(list(list_contexts(judged)[1]))


def test_who_is_asked_again_knows_what_was_tried_and_others_do_not(small_chat: Chat) -> None:
    found = play(small_chat, "backtracked+text", ["side", "no", "up", "yes", *["up", "yes"] * 3])
    assert found.outcome == Score(value=1.0, is_success=True)
    texts = [small_chat.tokenizer.decode(list(ids)) for ids in list_contexts(found)]
    assert "side → beside 0" in texts[2] and "Did that help" not in texts[2]
    assert [turn.starts_segment for turn in found.turns[:4]] == [True, False, True, False]
    kept = follow_found(found)
    assert [turn.action.text for turn in kept.turns] == ["up"] * 4 and kept.turns[-1].reward == 1.0


def test_verdicts_are_read_and_bad_settings_refused() -> None:
    assert [refuses(text) for text in ("no", " No, lost.", "yes", "", "?")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    with pytest.raises(UsageError, match="backtracked: got retries=-1; give 0 or more"):
        Backtracked(AGENT, AGENT, retries=-1)
