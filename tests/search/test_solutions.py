"""A tree of solutions: what is chosen next, what is told, that a metric is what was measured, and what is handed in."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from quintain.agents.catalog import build
from quintain.data.searched import ATTEMPT, follow_found, split_attempts, split_head
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import Environment, SolutionRun, advance, begin
from quintain.errors import DataError, UsageError
from quintain.memory.bank import Bank, Entry
from quintain.rollout.collect import Rollout
from quintain.search.drafted import (
    CODE,
    DONE,
    GOALS,
    KNOWN,
    LINE,
    RATE,
    SO_FAR,
    Drafted,
    DraftedWorld,
    load_knowledge,
    rank_knowledge,
    read_solution,
    tell_knowledge,
)
from quintain.search.solutions import (
    Kind,
    Policy,
    Solution,
    choose,
    find_best,
    find_bests,
    list_gains,
    pick_trick,
    read_rating,
)
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.types import Action, StepResult, Task, as_text
from quintain.worlds.keydoor.game import KeyDoor

TASK = Task(id="sum/eval/0", environment="sum", seed=0, split="eval")
OWN = replace(TASK, id="sum/train/0", split="train")


class Sum(Environment):
    """Write numbers, one a line. A solution measures a tenth of their sum, and is paid half of that."""

    name = "sum"

    def __init__(self) -> None:
        self.handed: list[str] = []

    def reset(self, task: Task) -> str:
        return "Add up to ten."

    def step(self, action: Action) -> StepResult:
        self.handed.append(action.text)
        paid = (self.run_solution(action.text).metric or 0) / 2
        return StepResult(observation="taken", reward=paid, is_terminated=True, is_success=paid > 0.4)

    def run_solution(self, text: str) -> SolutionRun:
        problem = self.check_solution(text)
        if problem or not text:
            return SolutionRun(output=problem or "Error: empty")
        return SolutionRun(output="ok", metric=sum(map(int, text.split())) / 10)

    def check_solution(self, text: str) -> str:
        return "" if all(word.isdigit() for word in text.split()) else "Error: no number"

    def hand_in(self, text: str) -> Action:
        return Action(text=text)

    def expert_action(self) -> Action:
        return Action(text="4\n5")


def node(number: int, kind: Kind, parent: Solution | None = None, **fields: Any) -> Solution:
    return Solution(
        number=number,
        kind=kind,
        parent=None if parent is None else parent.number,
        root=number if parent is None else parent.root,
        text="",
        **fields,
    )


def settings(**options: Any) -> Drafted:
    chat: Any = None
    return Drafted(chat=chat, **options)


def play(world: DraftedWorld, say: Callable[[str], str], task: Task = TASK) -> list[StepResult]:
    """Return what an agent is answered who says what `say` makes of what it is shown; the last is the end."""
    observation, found = begin(world, task), list[StepResult]()
    while not found or not found[-1].is_over:
        found.append(advance(world, Action(text=say(as_text(split_head(observation)[2])))))
        observation = found[-1].observation
    return found


def speaker(
    code: Iterator[str], rating: str = "1", lines: Iterator[str] | None = None
) -> Callable[[str], str]:
    """Return who plans nothing, rates all alike, and says the next of `code` or `lines`."""

    def say(shown: str) -> str:
        if shown.endswith(CODE):
            return next(code)
        if lines is not None and shown.endswith(LINE):
            return next(lines)
        return rating if shown.endswith(RATE) else "a plan"

    return say


def test_the_next_move_is_drawn_as_published() -> None:
    first = node(0, "draft", metric=0.5)
    tree = [first, node(1, "draft"), node(2, "draft", metric=0.4), node(3, "improve", first, metric=0.7)]
    given = Policy(drafts=3, debug=0.5, tune=0.1, most_tuned=0.3, greedy=0.8)
    rng = Random(0)
    seen = Counter(
        (kind, where.number) for kind, where in (choose(tree, given, rng) for _ in range(10_000)) if where
    )
    expected = {
        ("debug", 1): 0.5,
        ("tune", 3): 0.5 * 0.2 / 2,
        ("tune", 2): 0.5 * 0.2 / 2,
        ("improve", 3): 0.5 * 0.8 * (0.8 + 0.2 / 2),
        ("improve", 2): 0.5 * 0.8 * 0.2 / 2,
    }
    chi = sum((seen[move] - 1e4 * share) ** 2 / (1e4 * share) for move, share in expected.items())
    assert chi < 18.5 and sum(seen.values()) == 10_000, "p = .001 of four degrees of freedom"
    assert [where.number for where in find_bests(tree)] == [3, 2]


def test_drafts_come_first_and_again_while_nothing_runs() -> None:
    given, rng = Policy(drafts=2, debug=1.0, depth=1), Random(0)
    broken = node(0, "draft")
    assert choose([broken], given, rng).kind == "draft"
    tree = [broken, node(1, "draft"), node(2, "debug", broken, depth=1)]
    assert {choose(tree, given, rng) for _ in range(20)} == {("debug", tree[1])}, (
        "no parent, none mended before"
    )
    assert choose([*tree, node(3, "debug", tree[1], depth=1)], given, rng) == ("draft", None)
    capped = Policy(drafts=1, debug=0.0, tune=1.0, most_tuned=0.0, greedy=1.0)
    assert choose([node(0, "draft", metric=0.1)], capped, rng).kind == "improve"


def test_of_equal_solutions_the_first_is_best_and_one_that_does_not_run_never_is() -> None:
    tree = [node(0, "draft"), node(1, "draft", metric=0.0), node(2, "draft", metric=0.0)]
    assert find_best(tree) is tree[1] and find_best(tree[:1]) is None
    assert find_bests(tree) == tree[1:]


def test_a_trick_is_told_once_on_a_way_and_useless_ones_last_and_half_of_the_time() -> None:
    tricks = [Entry(id=name, key="k", text=name) for name in "abc"]
    rng = Random(0)

    def draw(told: str, useless: str, rate: float = 1.0) -> Counter[str]:
        found = (pick_trick(tricks, told, useless, rate, rng) for _ in range(400))
        return Counter("" if trick is None else trick.id for trick in found)

    assert set(draw("a", "b")) == {"c"}
    assert set(draw("", "")) == {"a", "b", "c"}
    last = draw("a", "bc")
    assert set(last) == {"", "b", "c"} and 150 < last[""] < 250
    assert set(draw("abc", "")) == {""} and set(draw("", "", 0.0)) == {""}
    assert 60 < draw("", "", 0.8)[""] < 105


def test_ratings_are_the_first_number_that_is_one() -> None:
    assert [read_rating(text) for text in ("4", "It is 3 of 5", "70", "very")] == [4, 3, 1, 1]


def test_the_best_that_runs_is_handed_in_and_pays() -> None:
    world = DraftedWorld(inner := Sum(), settings(steps=3, drafts=3, stepwise=5))
    results = play(world, speaker(iter(("3", "9", "bad"))))
    assert inner.handed == ["9"] and results[-1].reward == 0.45 and results[-1].is_success
    assert [r.reward_terms.get(ATTEMPT) for r in results] == [None, 0.3, None, 0.9, None, 0.0]
    assert sum(r.reward for r in results[:-1]) == 0
    assert split_head(results[-1].observation) == ("end", (2, 3), "taken")


def test_where_nothing_runs_nothing_is_handed_in() -> None:
    world = DraftedWorld(inner := Sum(), settings(steps=4, drafts=2, stepwise=5))
    results = play(world, speaker(iter(("bad",) * 4)))
    assert inner.handed == [] and results[-1].is_terminated and results[-1].is_success is False
    assert results[-1].reward == 0 and len(world.tree) == 4


def test_the_best_of_the_tree_never_falls_and_what_does_not_run_is_never_returned() -> None:
    rng = Random(1)
    for _ in range(100):
        world = DraftedWorld(inner := Sum(), settings(steps=8, drafts=2, stepwise=5))
        play(world, speaker(iter([rng.choice(("bad", str(rng.randrange(9)))) for _ in range(8)])))
        best = [find_best(world.tree[: k + 1]) for k in range(8)]
        metrics = [-1.0 if each is None else each.metric or 0.0 for each in best]
        assert metrics == sorted(metrics)
        assert all(inner.run_solution(text).metric is not None for text in inner.handed)


def test_only_drafts_is_the_best_of_independent_ones() -> None:
    said = ("1", "bad", "7", "2", "7", "5")
    world = DraftedWorld(inner := Sum(), settings(steps=6, drafts=6, stepwise=5))
    play(world, speaker(iter(said)))
    assert {each.kind for each in world.tree} == {"draft"} and inner.handed == ["7"]
    assert find_best(world.tree) is world.tree[2]


def test_hard_drafts_are_written_line_by_line_and_each_line_is_run() -> None:
    world = DraftedWorld(inner := Sum(), settings(steps=1, drafts=1))
    asked = list[str]()
    say = speaker(iter(()), "4", iter(("3", "x", "x", "5", "y", DONE)))

    def listen(shown: str) -> str:
        asked.append(shown)
        return say(shown)

    play(world, listen)
    assert inner.handed == ["3\n5"] and len(asked) == 8
    assert asked[3].endswith(f"Plan: a plan\n\n{SO_FAR}\n3\n\n{LINE}")
    assert f"Error: no number\n\n{SO_FAR}\n3\n\n" in asked[4] and "Error" not in asked[6]


def test_a_line_that_fails_three_times_ends_the_solution() -> None:
    world = DraftedWorld(inner := Sum(), settings(steps=2, drafts=2, stepwise=0))
    results = play(world, speaker(iter(()), "", iter(("3", "x", "x", "x", *["2"] * 12))))
    first, second = world.tree
    assert first.text == "3\nx" and first.metric is None and first.output == "Error: no number"
    assert second.metric == 2.4 and inner.handed == ["\n".join("2" * 12)], "twelve lines are all"
    assert len(results) == 5 + 13


def test_ratings_decide_and_improvements_are_written_whole() -> None:
    asked = list[str]()
    say = speaker(iter(("2", "3", "4")), "3")

    def listen(shown: str) -> str:
        asked.append(shown.rpartition("\n\n")[2])
        return say(shown)

    play(DraftedWorld(Sum(), settings(steps=3, drafts=2, tune=0.0)), listen)
    assert asked == [GOALS["draft"], RATE, CODE, GOALS["draft"], RATE, CODE, GOALS["improve"], CODE]


def test_what_is_known_is_told_by_the_words_of_the_task() -> None:
    bank = Bank(
        [
            Entry(id="1", key="Add up to twelve", text="use 6", source="sum/train/1"),
            Entry(id="2", key="Divide something", text="use 7"),
            Entry(id="3", key="Add up to ten", text="own", source="sum/train/0"),
        ]
    )
    world = DraftedWorld(
        Sum(), tell_knowledge(settings(steps=3, drafts=1, stepwise=5, tune=0.0, tricks=1.0), bank)
    )
    asked = list[str]()

    def say(shown: str) -> str:
        asked.append(shown)
        return str(len(asked)) if shown.endswith(CODE) else "a plan"

    play(world, say, OWN)
    assert [entry.id for entry in world.known] == ["1"], "the task's own is not read, nor what shares no word"
    for shown in asked[:2]:
        assert f"Add up to ten.\n\n{KNOWN}\nuse 6\n\n" in shown, "a draft"
    assert KNOWN in asked[2] and KNOWN in asked[3], "an improvement"
    assert KNOWN not in asked[4], "told before on this way"
    assert "Solution 0:\n2\nok" in asked[3] and "0 draft 0.200: a plan" in asked[2]
    assert [each.trick for each in world.tree] == ["", "1", ""] and world.tree[1].base == 0


def test_children_of_one_solution_are_told_different_things() -> None:
    bank = Bank([Entry(id=name, key="Add up", text=f"use {name}") for name in "12"])
    given = tell_knowledge(settings(steps=4, drafts=1, stepwise=5, tune=0.0, tricks=1.0), bank)
    world = DraftedWorld(Sum(), given)
    play(world, speaker(iter("5333")))
    assert [each.parent for each in world.tree] == [None, 0, 0, 0]
    assert sorted(each.trick for each in world.tree) == ["", "", "1", "2"] and world.tree[3].trick == ""


def test_of_what_is_alike_that_is_read_which_gained_more() -> None:
    entries = [
        Entry(id="1", key="Add up to ten", text="a", value=0.1),
        Entry(id="2", key="Add up to ten", text="b", value=0.5),
        Entry(id="3", key="Add nothing", text="c", value=1.0),
        Entry(id="4", key="Divide", text="d", value=9.0),
    ]
    ranks = rank_knowledge("Add up to ten", entries)
    assert ranks == pytest.approx([1.1, 1.5, 2 * 8**-0.5, 0.0])
    world = DraftedWorld(Sum(), tell_knowledge(settings(count=2), Bank(entries)))
    begin(world, TASK)
    assert [entry.id for entry in world.known] == ["2", "1"]


def test_what_made_nothing_better_is_useless_also_where_it_had_to_be_mended() -> None:
    bank = Bank([Entry(id="1", key="Add up", text="use 6")])
    given = tell_knowledge(settings(steps=3, drafts=1, stepwise=5, tune=0.0, tricks=1.0, debug=1.0), bank)
    for said, useless in (("5", {"1"}), ("6", set[str]())):
        world = DraftedWorld(Sum(), given)
        play(world, speaker(iter(("5", "bad", said))))
        assert [each.kind for each in world.tree] == ["draft", "improve", "debug"]
        assert world.tree[2].trick == "1" and world.tree[2].base == 0 and world.tree[2].depth == 1
        assert world._useless == useless  # pyright: ignore[reportPrivateUsage]


def test_code_in_a_block_is_read_without_what_stands_around_it() -> None:
    world = DraftedWorld(inner := Sum(), settings(steps=2, drafts=2, stepwise=5))
    play(world, speaker(iter(("Here it is:\n```python\n3\n5\n```\nGood.", "7 ``` "))))
    assert inner.handed == ["3\n5"] and [each.metric for each in world.tree] == [0.8, None]
    assert read_solution(f"So\n\n{CODE}", "```\n4\n```") == "4"


def test_lines_that_gained_are_what_is_learned() -> None:
    assert list_gains([("a", 0.5), ("b", 0.4), ("a\nc", 0.9)]) == [("a", 0.5), ("c", pytest.approx(0.4))]
    assert list_gains([("a", 0.85), ("a\nb", 0.9)]) == [("a", 0.85)], "less than a tenth"
    assert list_gains([("bad", 0.0), ("a", 0.3)]) == [("a", 0.3)] and list_gains([]) == []


def test_a_solution_is_read_off_its_last_turn() -> None:
    assert read_solution(f"So\n\n{CODE}", "3\n4") == "3\n4"
    shown = f"Plan: so\n\nError: x\n\n{SO_FAR}\n3\n4\n\n{LINE}"
    assert read_solution(shown, "Done") == "3\n4" and read_solution(shown, "5") == "3\n4\n5"


def test_episodes_are_data_and_a_run_is_knowledge(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    chat, said = Chat(tokenizer), iter(("go", "1", "2", "go", "2\n7"))
    agent = build("drafted?steps=2&drafts=1&tune=0", chat, Sum())
    rollout = Rollout(agent, Sum, Scripted(lambda _request, _stream: chat.write(next(said)), tokenizer))
    ((episode,),) = [group.trajectories for group in rollout.groups([OWN], size=1, seed=0)]
    rollout.close()
    assert [turn.action.text for turn in episode.turns] == ["go", "1", "2", "go", "2\n7"]
    assert follow_found(episode).turns[-1].reward == 0.45 and len(follow_found(episode).turns) == 5
    first, second = split_attempts(episode)
    assert [t.turns[-1].reward for t in (first, second)] == [0.2, 0.9] and len(second.turns) == 2

    with Run.create(tmp_path / "run", recipe="collect", config={"environment": "sum"}) as run:
        run.append(
            [episode, replace(episode, task=replace(TASK, id="sum/9"), index=1, id="")], step=0, phase="train"
        )
    bank = load_knowledge(tmp_path / "run")
    assert [(entry.key, entry.text, entry.source) for entry in bank.entries] == [
        ("Add up to ten.", "2", "sum/train/0"),
        ("Add up to ten.", "7", "sum/train/0"),
    ], "of the held-out task nothing"
    assert bank.is_frozen
    bank.save(tmp_path / "bank.jsonl")
    assert len(load_knowledge(tmp_path / "bank.jsonl")) == 2


def test_knowledge_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match=r"knowledge: got .*empty.jsonl, which holds none"):
        settings(knowledge=str(tmp_path / "empty.jsonl"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "drafted: got steps=0"),
        ({"depth": -1}, "depth=-1"),
        ({"greedy": 1.5}, "drafted: got greedy=1.5; give a chance"),
        ({"stepwise": 6}, "drafted: got stepwise=6; give 0 to 5"),
    ],
)
def test_settings_that_are_none_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        settings(**options)


def test_an_environment_that_runs_no_solutions_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"drafted in keydoor: got an environment that does not run solutions"
    ):
        settings().equip(KeyDoor())
