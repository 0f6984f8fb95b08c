"""LIET's experiment and its promise: the script that writes notes, habits of seats, and what counts as a leak."""

from contextlib import closing

import pytest

from quintain.environments.protocol import begin
from quintain.memory.bank import Bank
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action
from quintain.worlds.twocards.game import TwoCards
from quintain_evidence.experiments.multiagent import liet
from quintain_evidence.promises.liet import WORLD, has_leak, read_cards


def test_a_script_notes_how_the_best_attempts_began_and_drops_the_worst() -> None:
    question = (
        f"What was learned:\n[4] {liet.HUSH}\n\nAttempt 1, solved in 2 steps:\nA: say red 4\nB: answer 5\n\n"
        "Attempt 2, not solved in 12 steps:\nA: pass\nB: pass"
    )
    assert liet.write_note(question) == f"delete 4\nadd: {liet.TELL}"
    assert liet.write_note(question.partition("\n\nAttempt 2")[0]) == "", (
        "one habit has nothing to be held against"
    )


@pytest.mark.parametrize(("habit", "kind"), [(liet.TELL, "say "), (liet.ASK, "ask "), (liet.HUSH, "pass")])
def test_a_seat_follows_its_habit(habit: str, kind: str) -> None:
    with closing(TwoCards()) as world:
        begin(world, world.task("train", 3))
        assert liet.follow(world, habit, []).startswith(kind)
        talk = liet.play_talk(world, world.task("train", 3), habit, 0)
    assert talk.is_success == (habit != liet.HUSH) and talk.turns[0].action.text.startswith(kind)


def test_notes_pay_where_both_cards_are_needed_alone() -> None:
    told, nothing = Bank(), Bank()
    with closing(TwoCards()) as both, closing(TwoCards(alone=1.0)) as one:
        told = liet.evolve_notes(both, 5, 2, is_dealt=False)
        assert [entry.text for entry in told.entries]
        assert liet.earn(both, told, 5, 30) > liet.earn(both, nothing, 5, 30) + 0.1
        assert liet.earn(one, told, 5, 30) == pytest.approx(liet.earn(one, nothing, 5, 30), abs=0.03)


def test_a_led_room_gives_all_the_same_steps() -> None:
    with closing(liet.make_room(is_led=True)) as room:
        tasks = [room.task("train", 1)]
        far = liet.count_log_steps(room, tasks, lambda _, __, actions: [0.0] * len(actions))
        near = liet.count_log_steps(room, tasks, lambda _, __, actions: [*range(len(actions), 0, -1)])
        assert far == near
        assert liet.count_expert_steps(room, "wait") >= 1


def test_a_fact_of_the_other_card_in_a_prompt_is_a_leak() -> None:
    with closing(TwoCards(max_turns=6, values=3)) as world:
        task = world.task("train", 1)
        question, (_, second) = read_cards(task)
        key = sorted(second - question)[0]
        say = turn_of(seat="A", action=Action(text="pass"))
        texts: dict[tuple[int, ...], str] = {(1,): f"A. {key} = 2.", (7,): "A. nothing"}
        for prompt, expected in (((1,), True), ((7,), False)):
            talk = episode_of([turn_of(seat="A", action=say.action, prompt_ids=prompt)], task=task)
            assert has_leak(talk, lambda ids: texts[tuple(ids)]) is expected
    assert WORLD.startswith("twocards?max_turns=6")
