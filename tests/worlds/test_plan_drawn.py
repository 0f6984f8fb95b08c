"""Domains as data: what is wrong with one, tasks that are drawn in it, easier and harder ones, and a file of one."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from quintain.environments.baselines import expert, play
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.types import Action
from quintain.worlds.plan.domains import CaseShape, draw_case, problem_of
from quintain.worlds.plan.drawn import (
    HARDEST,
    LONGEST,
    SHORTEST,
    draw_scene,
    draw_task,
    easier,
    evolve_task,
    harder,
    length,
    of_blocks,
    task_key,
)
from quintain.worlds.plan.game import Planning
from quintain.worlds.plan.strips import Atom, Domain, Predicate, Puzzle, Rule, faults, read_puzzle

X, P, Q = ("x", "thing"), ("p", "place"), ("q", "place")
PREDICATES = (
    Predicate("at", ("thing", "place"), "{} at {}"),
    Predicate("you", ("place",), "you at {}"),
    Predicate("held", ("thing",), "holding {}"),
    Predicate("path", ("place", "place"), "path from {} to {}"),
    Predicate("washed", ("thing",), "{} washed"),
)
YOU, HELD, AT = Atom("you", ("p",)), Atom("held", ("x",)), Atom("at", ("x", "p"))
GO = Rule("go to {q}", (P, Q), (YOU, Atom("path", ("p", "q"))), (Atom("you", ("q",)),), (YOU,))
TAKE = Rule("take {x}", (X, P), (YOU, AT), (HELD,), (AT,))
DROP = Rule("drop {x}", (X, P), (YOU, HELD), (AT,), (HELD,))
WASH = Rule("wash {x}", (X,), (HELD,), (Atom("washed", ("x",)),))
DOMAIN = Domain(("thing", "place"), PREDICATES, (GO, TAKE, DROP, WASH))
START = (
    Atom("at", ("mug", "shed")),
    Atom("you", ("yard",)),
    Atom("path", ("shed", "yard")),
    Atom("path", ("yard", "shed")),
)
GOAL = (Atom("washed", ("mug",)), Atom("at", ("mug", "yard")))
PUZZLE = Puzzle(DOMAIN, (("mug", "thing"), ("shed", "place"), ("yard", "place")), START, GOAL)
PLAN = ("go to shed", "take mug", "wash mug", "go to yard", "drop mug")


def test_a_puzzle_by_value() -> None:
    assert faults(PUZZLE) == [] and length(PUZZLE) == 5
    problem = PUZZLE.problem
    state = problem.start
    for words in PLAN:
        assert words in problem.applicable(state)
        state = problem.after(state, words) or 0
    assert problem.is_solved(state) and len(problem.plan(problem.start) or ()) == 5
    assert "path" not in " ".join(problem.facts) and PUZZLE.fixed == (
        "path from shed to yard",
        "path from yard to shed",
    )
    assert DOMAIN.told().endswith("wash X: needs holding X; gives X washed.")


def ruled(*rules: Rule) -> Puzzle:
    return replace(PUZZLE, domain=replace(DOMAIN, rules=(*DOMAIN.rules, *rules)))


DRY = Rule("dry {x}", (X,), (HELD,), (), (Atom("washed", ("x",)),))


@pytest.mark.parametrize(
    ("puzzle", "said"),
    [
        (ruled(DRY._replace(needs=(Atom("hot", ("x",)),))), "predicate 'hot' is not defined"),
        (ruled(DRY._replace(parameters=(X, P))), "does not use its parameter 'p'"),
        (replace(PUZZLE, goal=START[:1]), "the goal holds at the start"),
        (ruled(DRY._replace(deletes=(Atom("washed", ("y",)),))), "'y' is not defined"),
        (ruled(DRY._replace(deletes=(Atom("at", ("x",)),))), "'at' takes 2 terms, not 1"),
        (ruled(Rule("dry {x}", (X, P), (HELD,), (), (Atom("washed", ("p",)),))), "'p' is a place, where 'washed'"),
        (ruled(DRY._replace(deletes=())), "changes nothing"),
        (ruled(DRY._replace(adds=DRY.deletes)), "gives and ends 'x washed'"),
        (ruled(DRY._replace(words="dry {z}")), "names what is none of its parameters"),
        (ruled(DRY._replace(parameters=(("x", "tool"),))), "parameter of the kind 'tool'"),
        (ruled(WASH), "action 'wash {x}' is defined twice"),
        (replace(PUZZLE, domain=replace(DOMAIN, rules=(GO, TAKE, DROP))), "no plan reaches the goal"),
        (replace(PUZZLE, goal=()), "the goal is empty"),
        (replace(PUZZLE, goal=(Atom("washed", ("lamp",)),)), "goal: 'lamp' is not defined"),
        (replace(PUZZLE, things=(*PUZZLE.things, ("mop", "tool"))), "thing 'mop' is of the kind 'tool'"),
        (replace(PUZZLE, things=(*PUZZLE.things, *((f"t{n}", "thing") for n in range(10)))), "there are 13 things"),
        (replace(PUZZLE, domain=replace(DOMAIN, predicates=(*PREDICATES, Predicate("new", ("tool",), "new")))),
         "predicate 'new' is of the kind 'tool'"),
    ],
)  # fmt: skip
def test_planted_faults_are_found(puzzle: Puzzle, said: str) -> None:
    assert any(said in fault for fault in faults(puzzle)), faults(puzzle)


@pytest.mark.slow
def test_drawn_tasks_have_no_fault_and_evolve_both_ways_in_their_domain() -> None:
    rng, keys, kept = random.Random(0), set[str](), 0
    for _ in range(60):
        task = draw_task(draw_scene(rng), rng)
        if task is None:
            continue
        kept += 1
        keys.add(task_key(task))
        assert faults(task) == [] and SHORTEST <= length(task) <= LONGEST and len(task.goal) == 2
        easy, hard = easier(task, rng), harder(task, rng)
        assert easy is not None and set(easy.goal) < set(task.goal) and 0 < length(easy) < length(task)
        if hard is not None:
            assert set(hard.goal) > set(task.goal) and length(task) < length(hard) <= HARDEST
            assert replace(hard, goal=task.goal) == task, "nothing but the goal is changed"
            assert faults(hard) == []
        assert evolve_task(task, "none", rng) is task
    assert kept > 50 and len(keys) == kept


def test_names_do_not_make_another_task() -> None:
    rng = random.Random(3)
    task = draw_task(draw_scene(rng), rng)
    assert task is not None
    names = {old: f"new{number}" for number, (old, _) in enumerate(task.things)}

    def renamed_atoms(atoms: Sequence[Atom]) -> tuple[Atom, ...]:
        return tuple(Atom(atom.predicate, tuple(names[term] for term in atom.terms)) for atom in atoms)

    renamed = Puzzle(
        task.domain,
        tuple((names[old], kind) for old, kind in reversed(task.things)),
        renamed_atoms(task.start),
        renamed_atoms(task.goal),
    )
    assert task_key(renamed) == task_key(task) and renamed != task
    assert task_key(replace(task, goal=task.goal[:1])) != task_key(task)


@pytest.mark.slow
def test_no_drawn_domain_is_in_both_splits_and_the_expert_solves_them() -> None:
    world = Planning(domain="drawn", evolved="mixed")
    seen: dict[str, set[Domain]] = {"train": set(), "eval": set()}
    lengths: list[int] = []
    for split in ("train", "eval"):
        for index in range(25):
            task = world.task(split, index)
            first = begin(world, task)
            case = world.snapshot()[0]
            assert (
                isinstance(case, Puzzle) and str(first).startswith("Goal: ") and "take X: needs" in str(first)
            )
            seen[split].add(case.domain)
            episode = play(world, task, expert)
            assert episode.is_success
            lengths.append(len(episode.rewards))
    assert not seen["train"] & seen["eval"] and len(seen["train"]) > 20
    assert min(lengths) < SHORTEST and max(lengths) > 10 and world.max_turns == 30
    assert world.instructions() == "Reach the goal. Act: an action, as the rules name it, or wait."
    assert Planning().instructions().startswith("Reach the goal.") and "Blocks:" in Planning().instructions()


def test_a_drawn_domain_has_as_many_things_and_places_as_are_asked_for() -> None:
    world = Planning(domain="drawn", evolved="mixed", things=1, places=2)
    for index in range(10):
        task = world.task("train", index)
        begin(world, task)
        case = world.snapshot()[0]
        assert isinstance(case, Puzzle)
        assert Counter(kind for _, kind in case.things) == {"thing": 1, "place": 2}
        assert play(world, task, expert).is_success


@pytest.mark.slow
def test_blocks_evolve_as_other_domains_and_are_told_as_blocks_are() -> None:
    lengths: dict[str, list[int]] = {"none": [], "easy": [], "hard": []}
    for how, found in lengths.items():
        world = Planning(blocks=3, evolved=how)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        seen: dict[str, set[str]] = {"train": set(), "eval": set()}
        for split, own in seen.items():
            for index in range(40):
                task = world.task(split, index)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
                own.add(str(begin(world, task)))
                found.append(len(play(world, task, expert).rewards))
        assert not seen["train"] & seen["eval"] and all("needs" not in first for first in seen["train"])
    assert fmean(lengths["easy"]) + 0.3 < fmean(lengths["none"]) < fmean(lengths["hard"]) - 0.3


def test_blocks_are_the_same_domain_in_either_form() -> None:
    rng = random.Random(0)
    for _ in range(20):
        case = draw_case(CaseShape("blocks", 3, 0, 0, False), rng)
        one, other = problem_of(case), of_blocks(case.things, case.start, case.goal).problem
        one_words, other_words = ({words for words, *_ in found.operators} for found in (one, other))
        assert one_words == other_words and one.distance(one.start) == other.distance(other.start)


def as_json() -> dict[str, object]:
    return {
        "things": dict(PUZZLE.things),
        "predicates": {p.name: {"kinds": p.kinds, "words": p.words} for p in PREDICATES},
        "actions": {
            r.words: {
                "parameters": dict(r.parameters),
                **{
                    part: [[a.predicate, *a.terms] for a in atoms]
                    for part, atoms in (("needs", r.needs), ("adds", r.adds), ("deletes", r.deletes))
                },
            }
            for r in DOMAIN.rules
        },
        "start": [[a.predicate, *a.terms] for a in START],
    }


def test_a_domain_of_ones_own_is_read_and_played(tmp_path: Path) -> None:
    file = tmp_path / "yard.json"
    file.write_text(json.dumps(as_json()), encoding="utf-8")
    assert read_puzzle(file) == replace(PUZZLE, goal=())
    world = Planning(domain=str(file))
    tasks = {
        split: {str(begin(world, world.task(split, n))) for n in range(20)} for split in ("train", "eval")
    }
    assert tasks["train"] and tasks["eval"] and not tasks["train"] & tasks["eval"]
    assert play(world, world.task("train", 0), expert).is_success
    key = world.task_key()
    advance(world, Action(text="wait"))
    assert world.task_key() == key and Planning().task_key()


def test_a_broken_file_is_told_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "yard.json"
    with pytest.raises(UsageError, match=r"which is none \(FileNotFoundError"):
        Planning(domain=str(file))
    file.write_text("[]", encoding="utf-8")
    with pytest.raises(UsageError, match=r"which is none \(TypeError"):
        Planning(domain=str(file))
    broken = as_json()
    broken["start"] = [["at", "mug", "moon"]]
    file.write_text(json.dumps(broken), encoding="utf-8")
    with pytest.raises(UsageError, match=r"in which start: 'moon' is not defined; correct it"):
        Planning(domain=str(file))
    with pytest.raises(UsageError, match="domain=chess; give blocks"):
        Planning(domain="chess")
    with pytest.raises(UsageError, match="evolved=easy with domain=logistics"):
        Planning(domain="logistics", evolved="easy")
    with pytest.raises(UsageError, match="irreversible=True"):
        Planning(irreversible=True, evolved="easy")


def test_domains_with_nothing_to_do_or_too_much_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "yard.json"
    small = as_json()
    small["actions"] = {words: rule for words, rule in small["actions"].items() if words == "wash {x}"}  # type: ignore[attr-defined] # pyright: ignore
    file.write_text(json.dumps({**small, "start": [["held", "mug"]]}), encoding="utf-8")
    world = Planning(domain=str(file))
    with pytest.raises(UsageError, match="gave no task of 3 to 14 steps"):
        begin(world, world.task("train", 0))
    file.write_text(json.dumps(as_json()), encoding="utf-8")
    monkeypatch.setattr("quintain.worlds.plan.problem.MAX_STATES", 5)
    with pytest.raises(UsageError, match="more than 5 states"):
        Planning(domain=str(file))
