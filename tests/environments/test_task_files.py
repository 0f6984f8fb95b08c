"""Tasks of a file: every form, the split, what is refused with its line, and environments that take them."""

import json
from pathlib import Path
from typing import Any

import pytest

import quintain
from quintain.curriculum.streams import TaskStream, draw_held_out
from quintain.environments.baselines import expert, play
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, Expert, Legal
from quintain.environments.smoke_test import find_ready
from quintain.environments.task_files import (
    read_held_out_prompts,
    read_tasks,
    refuse_overlap,
    split_spec,
    tasks_spec,
    with_tasks,
)
from quintain.errors import DataError, QuintainError, UsageError
from quintain.types import Action, StepResult, Task

ROWS: list[dict[str, Any]] = [
    {"id": f"t{number}", "prompt": f"add {number}", "answer": number + 1} for number in range(40)
]
TAKES = """
from quintain import Environment, StepResult, Action
class Adds(Environment):
    '''Add one.'''
    max_turns = 2
    def reset(self, task):
        self.answer = task.data["answer"]
        return task.prompt
    def step(self, action):
        won = action.text == str(self.answer)
        return StepResult(observation="", reward=float(won), is_terminated=True)
    def legal_actions(self):
        return (str(self.answer), "no")
    def expert_action(self):
        return Action(text=str(self.answer))
class Deaf(Adds):
    '''Hears nothing.'''
    def reset(self, task):
        self.answer = 3
        return "add"
"""


def written(tmp_path: Path, rows: list[Any], name: str = "tickets.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_every_other_column_is_data(tmp_path: Path) -> None:
    found = read_tasks(written(tmp_path, ROWS))
    tasks = {task.id: task for task in (*found.train, *found.eval)}
    one = tasks["tickets.jsonl/t3"]
    assert (one.prompt, dict(one.data), one.environment) == ("add 3", {"answer": 4}, "tickets.jsonl")
    assert len(tasks) == 40 and {task.split for task in found.eval} == {"eval"}
    assert {task.seed & 1 for task in found.eval} == {1} and {task.seed & 1 for task in found.train} == {0}


def test_a_share_is_held_out_by_id_whatever_else_is_in_the_file(tmp_path: Path) -> None:
    all_of_them = read_tasks(written(tmp_path, ROWS))
    fewer = read_tasks(written(tmp_path, list(reversed(ROWS[:30])), "tickets.jsonl"))
    held_out = {task.id for task in all_of_them.eval}
    assert all_of_them.is_drawn and 3 <= len(held_out) <= 15
    assert {task.id for task in fewer.eval} == held_out & {f"tickets.jsonl/t{number}" for number in range(30)}


def test_tasks_that_say_the_same_are_on_one_side(tmp_path: Path) -> None:
    rows = [{"id": number, "prompt": f"add {number % 20}"} for number in range(40)]
    found = read_tasks(written(tmp_path, rows))
    assert not {task.prompt for task in found.train} & {task.prompt for task in found.eval}


@pytest.mark.parametrize("number", range(5))
def test_two_tasks_are_one_for_each_side(number: int, tmp_path: Path) -> None:
    found = read_tasks(
        written(tmp_path, [{"id": f"{number}a", "prompt": "a"}, {"id": f"{number}b", "prompt": "b"}])
    )
    assert (len(found.train), len(found.eval)) == (1, 1)


@pytest.mark.parametrize("held_out", ["eval", "test", "Validation", "dev"])
def test_the_file_says_what_is_held_out(held_out: str, tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "split": "train"},
        {"prompt": "b", "split": held_out},
        {"prompt": "c", "split": "train"},
    ]
    found = read_tasks(written(tmp_path, rows))
    assert [task.prompt for task in found.train] == ["a", "c"] and not found.is_drawn
    assert [task.id for task in found.eval] == ["tickets.jsonl/1"]
    assert str(found) == "tasks tickets.jsonl: 2 to train on, 1 held out"


def test_a_task_of_one_file_that_another_holds_out_is_refused(tmp_path: Path) -> None:
    own = written(
        tmp_path, [{"id": n, "prompt": f"add {n}", "split": "eval" if n == 9 else "train"} for n in range(10)]
    )
    far = [
        {"id": f"o{n}", "prompt": f"add {n}", "split": "train" if n == 30 else "eval"} for n in (30, 8, 3, 40)
    ]
    other = written(tmp_path, far, "others.jsonl")
    specs = [tasks_spec("", path) for path in (own, other)]
    said = r"others.jsonl line 2: got a held-out task that tickets.jsonl line 9 trains on \(2 such of 3\); leave it out"
    with pytest.raises(DataError, match=said):
        refuse_overlap(*specs)
    for fine in ((specs[0], specs[0]), (specs[0], "guess"), ("guess", specs[1]), (specs[1], specs[0])):
        refuse_overlap(*fine)
    with pytest.raises(DataError, match="got a held-out task that tickets"):
        agent = f"{written(tmp_path, [], 'a.py')}:run?grade=grade"
        quintain.train(
            "grpo", environment=specs[0], eval_environment=specs[1], agent=agent, root=tmp_path / "runs"
        )
    assert not (tmp_path / "runs").exists(), "nothing was written"


def test_prompts_that_are_held_out(tmp_path: Path) -> None:
    rows = [
        {"prompt": "add 1", "split": "train"},
        {"prompt": "sort it", "x": 1, "split": "train"},
        {"prompt": "sort it", "x": 2, "split": "eval"},
        {"prompt": "add 2", "split": "eval"},
        {"x": 4, "split": "eval"},
    ]
    spec = tasks_spec("", written(tmp_path, rows))
    ids = {f"tickets.jsonl/{line - 1}": f"tickets.jsonl line {line}" for line in (3, 4, 5)}
    assert read_held_out_prompts(spec, "guess") == {**ids, "add 2": "tickets.jsonl line 4"}
    assert read_held_out_prompts("guess") == {}


def test_csv_and_parquet_hold_the_same(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "a.csv").write_text(
        '\ufeffid,prompt,data,who,split\n1,"said ""hi"", then\nleft","{""answer"": 4}",Ana,train\n2,b,,,eval\n',
        encoding="utf-8",
    )
    rows = [
        {"id": 1, "prompt": 'said "hi", then\nleft', "data": '{"answer": 4}', "who": "Ana", "split": "train"},
        {"id": 2, "prompt": "b", "data": None, "who": None, "split": "eval"},
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        found = read_tasks(tmp_path / name)
        (one,), (other,) = found.train, found.eval
        assert (one.id, one.prompt) == (f"{name}/1", 'said "hi", then\nleft')
        assert dict(one.data) == {"answer": 4, "who": "Ana"} and dict(other.data) == {}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([1], "tickets.jsonl line 1: got no JSON object"),
        ([{"prompt": 4}], "line 1: got the prompt 4"),
        ([{"prompt": "a"}, {"id": 3}], "line 2: got a task without prompt and data"),
        (
            [{"prompt": "a", "id": "x"}, {"prompt": "b", "id": "x"}],
            "line 2: got the id 'x' of tickets.jsonl line 1",
        ),
        ([{"prompt": "a", "id": None}, {"prompt": "b", "id": [1]}], r"line 2: got the id \[1\]"),
        ([{"prompt": "a", "split": "sometimes"}], "line 1: got the split 'sometimes'; say train or eval"),
        (
            [{"prompt": "a", "split": "train"}, {"prompt": "b"}],
            "line 2: got no split, which other tasks have",
        ),
        ([{"prompt": "a", "data": "{"}], "line 1: got data '{'; give an object"),
        ([{"prompt": "a", "data": [1]}], "line 1: got data"),
        ([{"prompt": "a", "data": "[" * 100_000}], "line 1: got data"),
        ([{"prompt": "a", "data": {"x": 1}, "x": 2}], "line 1: got 'x' in data and beside it"),
        ([{"prompt": "a"}], "got 1 tasks, none to hold out"),
        (
            [{"prompt": "a", "split": "train"}, {"prompt": "b", "split": "train"}],
            "got 2 tasks, none to hold out",
        ),
        ([{"prompt": "a", "split": "eval"}], "got 1 tasks, none to train on"),
        (
            [
                {"prompt": "a", "split": "train"},
                {"prompt": "b", "split": "train"},
                {"prompt": "a", "split": "eval"},
            ],
            "line 3: got a held-out task that is tickets.jsonl line 1 of training, too",
        ),
    ],
)
def test_what_is_no_task_is_refused_with_its_line(rows: list[Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        read_tasks(written(tmp_path, rows))


def test_halves_of_surrogate_pairs_in_data_are_made_whole(tmp_path: Path) -> None:
    halves = r'{"\ud800": "a\udfff"}'
    found = read_tasks(written(tmp_path, [{"prompt": "a", "data": halves}, {"prompt": "b"}]))
    (data,) = [dict(task.data) for task in (*found.train, *found.eval) if task.prompt == "a"]
    assert data == {"\ufffd": "a\ufffd"}


def test_broken_files_are_refused_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("prompt,id\na,1\nb,2,3\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.csv line 3: got more or fewer cells"):
        read_tasks(tmp_path / "a.csv")
    (tmp_path / "b.jsonl").write_text('{"prompt": "a"}\n{"prompt": \n', encoding="utf-8")
    with pytest.raises(DataError, match=r"b\.jsonl line 2"):
        read_tasks(tmp_path / "b.jsonl")


def test_what_is_given_as_tasks(tmp_path: Path) -> None:
    path = written(tmp_path, ROWS)
    assert with_tasks({"tasks": 4, "seed": 1}) == {"tasks": 4, "seed": 1}
    assert with_tasks({"tasks": "16"}) == {"tasks": "16"}
    assert with_tasks({"tasks": str(path)}) == {"environment": f"tasks:@{path}"}
    spec = with_tasks({"tasks": path, "environment": "guess?high=8"})["environment"]
    assert spec == f"tasks:guess?high=8@{path}" and split_spec(spec) == ("guess?high=8", str(path))
    assert tasks_spec(spec, path) == spec
    for given, said in (
        ("tickets.txt", "give a number, or a file that ends in"),
        (str(tmp_path / "none.csv"), "there is no such file"),
        ("some", "give a number, or a file"),
    ):
        with pytest.raises(UsageError, match=said):
            with_tasks({"tasks": given})
    with pytest.raises(UsageError, match="write it as tasks:@FILE"):
        find("tasks:guess")


def test_tasks_alone_are_an_environment_for_an_agent_of_ones_own(tmp_path: Path) -> None:
    path = written(tmp_path, ROWS)
    recipe = find_ready(tasks_spec("", path), for_training=True, for_model=True)
    world = recipe()
    stream = TaskStream(tasks_of(recipe))
    count = len(read_tasks(path).train)
    first = [task.id for task in stream.draw(0, count)]
    again = [task.id for task in stream.draw(1, count)]
    assert len(set(first)) == count and set(again) == set(first) and again != first
    assert world.reset(stream.at(0)) == stream.at(0).prompt and world.name == "tickets.jsonl"
    held_out = draw_held_out(tasks_of(recipe), 128)
    assert [task.id for task in held_out] == [task.id for task in read_tasks(path).eval]
    assert len(draw_held_out(tasks_of(recipe), 2)) == 2


def test_an_environment_with_tasks_of_a_file_can_what_it_could(tmp_path: Path) -> None:
    (tmp_path / "adds.py").write_text(TAKES)
    path = written(tmp_path, ROWS)
    recipe = find_ready(tasks_spec(f"{tmp_path}/adds.py:Adds", path), for_training=True)
    world = recipe()
    assert isinstance(world, Legal) and isinstance(world, Expert) and world.name == "tickets.jsonl"
    found = play(world, world.task("eval", 0), expert)
    assert found.is_success and world.task("eval", 0).id.startswith("tickets.jsonl/")


def test_tasks_that_an_environment_does_not_take_are_refused(tmp_path: Path) -> None:
    (tmp_path / "adds.py").write_text(TAKES)
    path = written(tmp_path, [*ROWS[:9], {"id": "odd", "prompt": "add what?"}])
    with pytest.raises(
        QuintainError, match=r"tickets\.jsonl line 10: got a task that environment Adds does not take"
    ):
        find_ready(tasks_spec(f"{tmp_path}/adds.py:Adds", path))
    with pytest.raises(QuintainError, match="got 10 tasks of which environment Deaf shows nothing"):
        find_ready(tasks_spec(f"{tmp_path}/adds.py:Deaf", path))


def test_an_environment_that_has_so_many_tasks_is_evaluated_on_each_once() -> None:
    class Few(Environment):
        """Has three."""

        def num_tasks(self, split: str) -> int:
            return 3

        def reset(self, task: Task) -> str:
            return ""

        def step(self, action: Action) -> StepResult:
            return StepResult(observation="")

    assert len(draw_held_out(tasks_of(Few), 128)) == 3
