"""Attempts that evolve: what operators make of them by hand, what is told, and that a score is what was carried out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from quintain.agents.catalog import build
from quintain.data.pairs import extremes
from quintain.data.searched import ATTEMPT, follow_found, split_attempts, split_head
from quintain.engines.scripted import Scripted
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, advance, begin
from quintain.errors import UsageError
from quintain.rollout.collect import Rollout
from quintain.search.evolve import (
    AVOID,
    RECOMBINE,
    REFINE,
    REVISE,
    Attempt,
    Evolved,
    EvolvedWorld,
    align,
    find_best,
    find_risks,
    pick_mate,
    prune,
    recombine,
    weigh,
)
from quintain.text.chat import Chat
from quintain.types import Action, Score, StepResult, Task, Trajectory


class Lock(Environment):
    """Set three wheels, then open. Act: the letter of a wheel's position, aAbBcC, or open."""

    name = "lock"
    max_turns = 5
    is_reversible = True

    def __init__(self) -> None:
        self.wheels: dict[str, str] = {}
        self.resets = 0

    def reset(self, task: Task) -> str:
        self.wheels, self.resets = {}, self.resets + 1
        return self.show()

    def show(self) -> str:
        return f"Wheels: {' '.join(self.wheels.values())}"

    def step(self, action: Action) -> StepResult:
        if action.text != "open":
            if action.text in "aAbBcC":
                self.wheels[action.text.lower()] = action.text
            return StepResult(observation=self.show(), is_valid=action.text in "aAbBcC")
        paid = sum(wheel.isupper() for wheel in self.wheels.values()) / 3
        return StepResult(
            observation="opened",
            reward=paid,
            reward_terms={"wheels": paid},
            is_terminated=True,
            is_success=paid == 1,
        )

    def can_go_back(self) -> bool:
        return self.is_reversible

    def progress(self) -> float:
        raise AssertionError("nothing hidden is read")

    def expert_action(self) -> Action:
        raise AssertionError("no expert is asked")


TASK = Task(id="lock/eval/0", environment="lock", seed=0, split="eval")


def attempt(actions: str, paid: float, changed: str = "") -> Attempt:
    return Attempt(
        actions=tuple(actions),
        changed=tuple(sign == "1" for sign in changed or "1" * len(actions)),
        paid=paid,
    )


def settings(**options: Any) -> Evolved:
    agent: Any = None
    return Evolved(agent, **options)


def play(
    world: EvolvedWorld, says: Iterator[str], does: Callable[[str], Sequence[str]] = lambda _told: ()
) -> list[StepResult]:
    """Return what an agent is answered who does what `does` makes of what it is told, else says what comes next."""
    found, todo = list[StepResult](), list[str]()
    observation = begin(world, TASK)
    while not found or not found[-1].is_over:
        what, _, shown = split_head(observation)
        if what == "begin":
            todo = [*does(str(shown))]
        found.append(advance(world, Action(text=todo.pop(0) if todo else next(says))))
        observation = found[-1].observation
    return found


def words(text: str) -> Iterator[str]:
    return iter(text.split())


def follow(told: str) -> Sequence[str]:
    lines = told.splitlines()
    place = next((k for k, line in enumerate(lines) if line in (RECOMBINE, REFINE)), None)
    return [] if place is None else lines[place + 1].split("; ")


def test_the_best_attempt_and_its_mate_are_chosen_by_pay_and_difference() -> None:
    pool = [attempt("abcd", 0.5), attempt("abcx", 0.4), attempt("wxyz", 0.3), attempt("abcd", 0.5)]
    best = find_best(pool)
    assert best is pool[0], "the first of equal ones"
    assert pick_mate(best, pool) is pool[1], "(.4 - .3) / .2 + ½ · ¼ = .625 against 0 + ½"
    pool[1] = attempt("abcx", 0.35)
    assert pick_mate(best, pool) is pool[2], ".25 + .125 against .5"
    assert pick_mate(best, [pool[0], pool[3]]) is None
    solved = replace(attempt("z", 0.1), last=StepResult(observation="", is_terminated=True, is_success=True))
    assert find_best([*pool, solved]) is solved


def test_segments_are_taken_from_the_side_that_was_paid_more() -> None:
    assert align("abc", "axcd") == [("a", "a"), ("b", "x"), ("c", "c"), ("", "d")]
    assert align("abcd", "axyd") == [("a", "a"), ("b", "x"), ("c", "y"), ("d", "d")]
    one, other = attempt("ABc", 0.6), attempt("aBC", 0.5)
    pool = [one, other, attempt("Abc", 0.3), attempt("abC", 0.4)]
    assert [weigh(part, pool) for part in ("A", "a", "c", "C", "", "AC")] == pytest.approx(
        [0.45, 0.45, 0.45, 0.45, 0.45, 0]
    )
    pool[2] = attempt("abc", 0.1)
    assert recombine(one, other, pool, Random(0)) == ("A", "B", "C"), "A .6 over a .33, C .45 over c .35"
    pool.append(attempt("ABC", 0.0))
    assert recombine(one, other, [one, other, attempt("ABC", 0.4), attempt("aBc", 0.4)], Random(0)) is None
    drawn = {recombine(one, other, [one, other], Random(seed)) for seed in range(20)}
    assert drawn == {tuple("ABC"), tuple("aBc")}, "what is worth the same is drawn, and only what is new"


def test_what_changed_nothing_goes_and_what_was_paid_little_is_a_risk() -> None:
    assert prune(attempt("abca", 0.1, "1011")) == ("a", "c", "a")
    assert find_risks([attempt("ax", 0.6), attempt("bx", 0.2), attempt("cx", 0.1)]) == ["c", "b"]


def test_parts_of_two_failures_solve_the_task() -> None:
    inner, says = Lock(), words("A B c open a b C open a b c open a b c open")
    found = play(EvolvedWorld(inner, settings(size=4, rounds=1)), says, follow)
    assert inner.resets == 5, "each attempt is carried out from the start"
    paid = [result.reward_terms[ATTEMPT] for result in found if ATTEMPT in result.reward_terms]
    assert paid == pytest.approx([2 / 3, 1 / 3, 0, 0, 1.0])
    end = found[-1]
    assert (end.reward, end.is_success, end.is_terminated) == (1.0, True, True)
    assert end.reward_terms == {"wheels": 1.0, ATTEMPT: 1.0}
    assert split_head(end.observation) == ("end", (16, 17, 18, 19), "opened")
    assert all(result.reward == 0 for result in found[:-1])


def test_operators_come_in_turn_and_say_what_to_do() -> None:
    says = words("A ? b c open a b C open" + " a" * 99)
    found = play(EvolvedWorld(Lock(), settings(size=2, rounds=2)), says)
    told = [
        str(split_head(result.observation)[2])
        for result in found
        if "[search begin]" in str(result.observation)
    ]
    assert len(told) == 7 and told[0] == "Wheels: "
    assert told[1].split("\n", 2)[2] in [
        f"{RECOMBINE}\n{child}" for child in ("A; ?; b; C; open", "a; b; c; open")
    ]
    lines = told[2].splitlines()
    assert lines[2] == REFINE and "A; b; c; open".startswith(lines[3]) and lines[4] == f"{AVOID}a"
    assert told[3].splitlines()[2:4] == [REVISE, "- A; ?; b; c; open"]
    assert found[-1].is_truncated is False and found[-1].reward == pytest.approx(1 / 3), "the first attempt's"
    assert split_head(found[-1].observation)[1] == (0, 1, 2, 3, 4)


def test_nobody_is_told_to_avoid_what_is_to_be_done() -> None:
    says = words("A b c open b c c open C open" + " a" * 99)
    found = play(EvolvedWorld(Lock(), settings(size=2, rounds=1)), says)
    (told,) = [str(result.observation) for result in found if REFINE in str(result.observation)]
    assert AVOID not in told, "b and c are paid less than the mean, and are what the best attempt did"


def test_nobody_begins_again_after_what_cannot_be_undone() -> None:
    inner = Lock()
    inner.is_reversible = False
    found = play(EvolvedWorld(inner, settings(size=3)), words("a b c open"))
    assert inner.resets == 1 and found[-1].is_over and found[-1].is_success is False


def test_what_cannot_evolve_is_refused() -> None:
    with pytest.raises(UsageError, match="got size=0, rounds=3; give 1 attempt"):
        settings(size=0)
    with pytest.raises(UsageError, match="several seats, whose moves nobody repeats"):
        EvolvedWorld(find("twocards")(), settings())


def play_model(chat: Chat, spec: str, says: str) -> Trajectory:
    left = words(says)
    engine = Scripted(lambda request, stream: chat.write(next(left)), chat.tokenizer)
    rollout = Rollout(build(spec, chat, Lock()), Lock, engine)
    (group,) = rollout.groups([TASK], size=1, seed=0)
    rollout.close()
    return group.trajectories[0]


def test_an_episode_is_attempts_of_which_pairs_are_made(tokenizer: PreTrainedTokenizerFast) -> None:
    whole = play_model(Chat(tokenizer), "evolved?size=3&rounds=0+text", "a b open A b c open a a open")
    assert not whole.is_success and outcome_value(whole) == pytest.approx(1 / 3)
    attempts = split_attempts(whole)
    assert [[turn.action.text for turn in each.turns] for each in attempts] == [
        ["a", "b", "open"], ["A", "b", "c", "open"], ["a", "a", "open"],
    ]  # fmt: skip
    assert [outcome_value(each) for each in attempts] == pytest.approx([0, 1 / 3, 0])
    first = attempts[0].turns[0]
    assert all(each.turns[0].starts_segment for each in attempts)
    assert all(each.turns[0].prompt_ids == first.prompt_ids for each in attempts), (
        "who is told nothing is plain"
    )
    assert [each.index for each in attempts] == [0, 1, 2] and len({each.group for each in attempts}) == 1
    assert [turn.action.text for turn in follow_found(whole).turns] == ["A", "b", "c", "open"]
    (pair,) = extremes([[(each, outcome_value(each)) for each in attempts]])
    assert pair.chosen is attempts[1]
    assert split_attempts(attempts[0]) == []


def outcome_value(trajectory: Trajectory) -> float:
    assert isinstance(trajectory.outcome, Score)
    return trajectory.outcome.value


def test_one_attempt_is_the_harness_inside_token_for_token(tokenizer: PreTrainedTokenizerFast) -> None:
    chat = Chat(tokenizer)
    arms = [play_model(chat, spec, "a b c open") for spec in ("evolved?size=1&rounds=0+text", "text")]
    one, other = (
        [(t.prompt_ids, t.completion.token_ids, t.starts_segment) for t in arm.turns] for arm in arms
    )
    assert one == other and arms[0].outcome == arms[1].outcome


def test_an_attempt_is_told_and_knows_nothing_else_of_those_before(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    chat = Chat(tokenizer)
    whole = play_model(chat, "evolved?size=1&rounds=1+text", "a b C open a B c open a b c open a b c open")
    second = split_attempts(whole)[1].turns
    assert second[0].starts_segment and not any(turn.starts_segment for turn in second[1:])
    seen = str(chat.tokenizer.decode(list(second[0].prompt_ids)))
    assert (
        REVISE in seen and "- a; b; C; open" in seen and seen.count("Wheels: ") >= 1 and "opened" not in seen
    )


def test_a_score_is_what_carrying_an_attempt_out_gave() -> None:
    """Whatever is told and done: no attempt has a score of its own making, and the best never falls."""
    rng = Random(0)

    def scores(actions: Sequence[str]) -> float:
        lock = Lock()
        begin(lock, TASK)
        return sum(lock.step(Action(text=word)).reward for word in actions)

    for _ in range(60):
        world = EvolvedWorld(Lock(), settings(size=2, rounds=2))
        play(world, (rng.choice([*"aAbBcC?", "open"]) for _ in range(99)), follow)
        for each in world.pool:
            assert each.paid == scores(each.actions)
            assert scores(prune(each)) == each.paid, "what changed nothing is not missed"
        best = [find_best(world.pool[: k + 1]).paid for k in range(len(world.pool))]
        assert best == sorted(best)
