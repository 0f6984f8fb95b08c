"""``quintain eval``, ``compare`` and ``collect``."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_episode, make_turn
from transformers import PreTrainedTokenizerFast

import quintain
from quintain import api
from quintain.cli.evaluation import arms_of
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.environments.protocol import begin, tool_action
from quintain.errors import UsageError
from quintain.eval.evaluate import evaluate
from quintain.store import Run
from quintain.text.tokenizer import train_tokenizer
from quintain.types import (
    Action,
    Failure,
    Outcome,
    Score,
    Stop,
    Task,
    Trajectory,
    as_content,
)
from quintain.worlds.calc.game import REFUSAL, Calc

Cli = Callable[..., Any]
Launcher = Any
BROKEN = Failure(owner="environment", kind="timeout", message="too slow")


def episode(name: str, outcome: Outcome) -> Trajectory:
    turn = make_turn((2, 3), text="go")
    return make_episode(
        turn,
        task=Task(id=name, environment="w", seed=1, split="eval"),
        outcome=outcome,
        stop=Stop.FAILURE if isinstance(outcome, Failure) else Stop.TERMINATED,
        seed=1,
        group=name,
    )


def episodes(results: str, prefix: str = "t") -> list[Trajectory]:
    """Return one episode per letter: 1 solved, 0 not, x broken."""
    outcomes: dict[str, Outcome] = {
        "0": Score(value=0.0, is_success=False),
        "1": Score(value=1.0, is_success=True),
        "x": BROKEN,
    }
    return [episode(f"{prefix}{place}", outcomes[letter]) for place, letter in enumerate(results)]


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose ids 2 and 3 mean something."""
    return train_tokenizer(["go on then"], vocab_size=300)


def make_run(name: str, results: str, prefix: str = "t") -> None:
    """Write a run whose first evaluation solved nothing and whose last one has `results`."""
    with Run.create(Path("runs", name), recipe="test", config={}) as run:
        for step, letters in enumerate(("0" * len(results), results)):
            trajectories = episodes(letters, prefix)
            run.append(trajectories, step=step, phase="eval")
            run.commit(step, evaluate(trajectories).metrics())
        run.commit(2, {"train/loss": 1.0})


@pytest.fixture
def answer(launcher: Launcher) -> Launcher:
    """A launcher whose evaluation solved 8 of 10, with 2 failures."""
    trajectories = episodes("1111111100xx")
    launcher.answer = (evaluate(trajectories), trajectories)
    return launcher


ALONE = {"reflect": False, "show_attempt": False, "show_errors": False, "max_repeats": None}
"""What is passed on where nothing is attempted again."""


def test_eval_passes_everything_on(cli: Cli, answer: Launcher) -> None:
    argv = ["--environment", "guess", "--episodes", "12", "--seed", "3", "--temperature", "0"]
    assert cli("eval", "model", *argv, "--agent", "react").status == 0
    settings = {"episodes": 12, "seed": 3, "temperature": 0.0, "agent": "react"}
    settings |= {"trials": 1, "attempts": 1, "out": None, "cluster": "", **ALONE}
    assert answer.calls == [("evaluate", "model", "guess", settings)]


@pytest.mark.parametrize(
    ("text", "target"),
    [("a", "runs/a"), ("runs/a", "runs/a"), ("gpt2", "gpt2"), ("Qwen/Qwen3", "Qwen/Qwen3")],
)
def test_eval_takes_a_run_by_name_and_leaves_hub_ids(
    cli: Cli, answer: Launcher, text: str, target: str
) -> None:
    Path("runs/a").mkdir(parents=True)
    cli("eval", text)
    assert answer.calls[0][1:3] == (target, None)


def test_eval_prints_rates_with_failures_beside_them(cli: Cli, answer: Launcher) -> None:
    lines = cli("eval", "model").out.splitlines()
    assert "success\t80.0 %" in lines
    assert "95 % interval\t[49.0, 94.3]" in lines
    assert "episodes\t10" in lines
    assert "failed\tenvironment 2" in lines
    assert "ended by\tfailure 2, terminated 10" in lines


def test_eval_as_json(cli: Cli, answer: Launcher) -> None:
    found = json.loads(cli("eval", "model", "--json").out)
    assert (found["num"], found["num_failed"], found["success"]) == (10, 2, 0.8)
    assert found["by_owner"] == {"environment": 2}

    assert (found["outcomes"]["done"], found["outcomes"]["broken"]) == (8, 2)
    assert [task["success"] for task in found["tasks"]] == [1.0] * 8 + [0.0] * 2 + [None] * 2
    assert found["tasks"][0]["episodes"][0]["outcome"] == "done"


def test_eval_of_several_trials_counts_tasks(cli: Cli, launcher: Launcher) -> None:
    played = [replace(t, index=n) for n, result in enumerate(("1100", "1000")) for t in episodes(result)]
    launcher.answer = (evaluate(played), played)
    lines = cli("eval", "model", "--trials", "2").out.splitlines()
    assert "pass@1, pass^1\t37.5 %, 37.5 %" in lines and "pass@2, pass^2\t50.0 %, 25.0 %" in lines
    assert next(line for line in lines if line.startswith("95 %")).endswith("over 4 clusters (task)")
    assert "outcomes\tdone 3, not_done 5" in lines
    assert launcher.calls[0][3]["trials"] == 2
    wrong = cli("eval", "model", "--cluster", "request")
    assert wrong.status == 2 and wrong.line.startswith(
        "cluster 'request': got t0, whose data does not say it"
    )


def test_eval_of_several_attempts_tells_success_by_round(cli: Cli, launcher: Launcher) -> None:
    played = [*episodes("100"), *episodes("010")[1:], *episodes("000")[2:]]
    launcher.answer = (evaluate(played), played)
    lines = cli("eval", "model", "--attempts", "3", "--reflect").out.splitlines()
    assert [line for line in lines if line.startswith("solved by")] == [
        "solved by attempt 1\t33.3 %", "solved by attempt 2\t66.7 %", "solved by attempt 3\t66.7 %",
    ]  # fmt: skip
    assert "success\t66.7 %" in lines and "episodes\t3" in lines, "the last attempt at each task"
    assert (launcher.calls[0][3]["attempts"], launcher.calls[0][3]["reflect"]) == (3, True)
    assert cli("eval", "model", "--attempts", "2", "--show-attempt", "--max-repeats", "3").status == 0
    told = launcher.calls[1][3]
    assert (told["reflect"], told["show_attempt"], told["max_repeats"]) == (False, True, 3)
    refused = cli("collect", "guess", "--max-repeats", "0", "--out", "x.jsonl")
    assert refused.status != 0 and "--max-repeats" in refused.error


def test_eval_of_several_models_pairs_them_by_task(cli: Cli, launcher: Launcher) -> None:
    answers = {"a": episodes("1000000000"), "b": episodes("1111110000"), "expert": episodes("1" * 10)}
    places: list[Path] = []

    def evaluate_one(target: str, environment: str | None, **settings: Any) -> Any:
        places.append(settings["out"])
        return evaluate(answers[target]), answers[target]

    launcher.evaluate = evaluate_one
    argv = ["eval", "a", "b", "expert", "--environment", "guess", "--out", "kept"]
    lines = cli(*argv).out.splitlines()
    assert lines[0].startswith("run\tsuccess\t95 % interval") and lines[1].startswith("a\t10.0 %")
    assert lines[2].split("\t")[5:7] == ["0", "10"] and lines[2].split("\t")[7].startswith("+50.0")
    assert lines[4].startswith("run\toutcomes\tpass@k\tpass^k\tcost") and "not_done 9" in lines[5]
    assert places == [Path("kept", name) for name in answers]
    found = json.loads(cli(*argv, "--json").out)
    assert found["baseline"] == "a" and found["reports"]["b"]["success"] == 0.6
    assert found["rows"][2]["p_value"] == pytest.approx(2 * 2 / 2**9), "exact, and corrected for two rows"
    assert cli("eval", "a", "a").line == "quintain eval: got 'a' twice; name different models"
    places.clear()
    assert (
        "got several models"
        in cli("eval", "a", "b", "--environment", "calc?withheld=0.5", "--hallucination").line
    )
    assert not places, "it is refused before anything is played"


def test_a_later_target_that_cannot_be_played_is_refused_before_an_earlier_one_is(cli: Cli) -> None:
    argv = ("eval", "random", "no_such_model", "--environment", "guess", "--episodes", "2", "--out", "kept")
    found = cli(*argv)
    assert found.status == 4 and "no_such_model" in found.error and not Path("kept").exists()
    assert cli("eval", "random", "expert", *argv[3:]).status == 0
    again = cli("eval", "random", "expert", *argv[3:], "--seed", "1")
    assert again.status == 2 and "which holds seed 0, not 1" in again.line


def test_several_environments_are_told_together_and_as_a_page(cli: Cli) -> None:
    worlds = (
        "--environment",
        "guess",
        "--environment",
        "files?kind=latent",
        "--environment",
        "files?kind=refine",
    )
    argv = ("eval", "random", "expert", *worlds, "--episodes", "2", "--out", "kept")
    lines = cli(*argv, "--page", "docs/page.md").out.splitlines()
    assert lines[0].split("\t") == ["benchmark", "random", "expert"]
    assert [line.split("\t")[0] for line in lines[1:5]] == [
        "guess",
        "files?kind=latent",
        "files?kind=refine",
        "all",
    ]
    assert lines[4].split("\t")[2].startswith("100.0 %")
    assert any(line.startswith("expert\t") and "calls of the model" in line for line in lines)
    page = Path("docs/page.md").read_text()
    assert (
        "quintain eval random expert --environment guess" in page and "| files?kind=latent | random |" in page
    )
    assert Path("kept", "files_kind_latent", "expert", "run.db").is_file()
    found = json.loads(cli(*argv, "--json").out)
    assert found["overall"]["rows"][1]["difference"]["num"] == 6, (
        "tasks of two specs of one world are not mixed up"
    )
    assert found["environments"]["guess"]["expert"]["success"] == 1.0 and found["leaderboard"] == {}
    refused = cli("eval", "expert", "--environment", "guess", "--page", "page.md")
    assert "--page: got one environment" in refused.line
    assert "'guess' twice" in cli("eval", "expert", "--environment", "guess", "--environment", "guess").line
    assert "ends with .md" in cli(*argv, "--page", "page.html").line
    bad = cli("eval", "expert", "--environment", "guess", "--environment", "gues", "--out", "other")
    assert bad.status == 2 and "did you mean 'guess'" in bad.line and not Path("other").exists()


def test_logs_of_inspect_are_written_and_compared(cli: Cli) -> None:
    cli("eval", "random", "--environment", "guess", "--episodes", "4", "--out", "kept")
    assert cli("export", "kept", "--to", "inspect", "--out", "log.json").out == "log.json: 4 episodes\n"
    lines = cli("compare", "kept", "log.json").out.splitlines()
    assert lines[2].split("\t")[6:8] == ["4", "+0.0 [+0.0, +0.0]"]
    assert "a log without steps" in cli("compare", "kept", "log.json", "--picture", "a.png").line
    wrong = cli("export", "kept", "--to", "inspect", "--out", "b.json", "--environment", "guess")
    assert "for a log, which has no prompts" in wrong.line


def test_several_models_are_not_kept_in_the_folder_of_one(
    cli: Cli, launcher: Launcher, tmp_path: Path
) -> None:
    Run.create(tmp_path / "kept", recipe="evaluation", config={}).close()
    found = cli("eval", "a", "b", "--environment", "guess", "--out", str(tmp_path / "kept"))
    assert found.status == 2 and "kept, which holds one evaluation, not several" in found.line
    assert not launcher.calls


def test_eval_scores_made_up_calls(cli: Cli, launcher: Launcher) -> None:
    world, made = Calc(steps=1, names=0, checks=0, withheld=0.5), list[Trajectory]()
    actions = [Action(text=REFUSAL), Action(text="<tool_call>{"), tool_action("add", a=1, b=2)]
    for number in range(40):
        task = world.task("eval", number)
        shown = as_content(begin(world, task))
        if world.is_withheld():
            own = episode(task.id, Score(value=0.0, is_success=False))
            turn = replace(own.turns[0], observation=shown, action=actions[len(made) % 3])
            made.append(replace(own, task=task, turns=(turn,)))
    made = made[:12]
    launcher.answer = (evaluate(made), made)
    spec = "calc?steps=1&names=0&checks=0&withheld=0.5"
    argv = ("eval", "model", "--environment", spec, "--hallucination")
    lines = cli(*argv).out.splitlines()
    assert "hallucination score\t0.5" in lines and "h format\t0.667" in lines and "h action\t0.333" in lines
    assert "replies without call\t12" in lines
    assert json.loads(cli(*argv, "--json").out)["hallucination_score"] == pytest.approx(0.5)
    launcher.answer = (evaluate(episodes("1")), episodes("1"))
    assert cli(*argv).line.startswith(
        f"--hallucination: got no reply in {spec} where its expert calls no tool"
    )
    assert "hallucination" not in cli(*argv[:-1]).out
    refused = cli("eval", "model", "--environment", "craft", "--hallucination")
    assert refused.status == 2 and refused.line.startswith("--hallucination: got craft, which lacks tools or")


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--episodes", "0"], "--episodes must be at least 1: got 0; give 1 or more"),
        (["--seed", "x"], "--seed must be an integer: got 'x'; give 0 or more"),
        (
            ["--temperature", "hot"],
            "--temperature must be a number of 0 or more: got 'hot'; give one such as 1.0",
        ),
        (
            ["--temperature", "-1"],
            "--temperature must be a number of 0 or more: got '-1'; give one such as 1.0",
        ),
        (["--enviroment", "x"], "flag of quintain eval: got '--enviroment'; did you mean '--environment'?"),
    ],
)
def test_eval_refuses_what_is_wrong(cli: Cli, launcher: Launcher, argv: list[str], line: str) -> None:
    found = cli("eval", "model", *argv)
    assert (found.status, found.line) == (2, line)
    assert launcher.calls == []


def test_compare_takes_the_last_evaluation_of_each_run(cli: Cli) -> None:
    make_run("old", "1000000011")
    make_run("new", "0111110011")
    found = json.loads(cli("compare", "old", "runs/new", "--json").out)
    assert found["baseline"] == "old"
    old, new = found["rows"]
    assert (old["evaluation"]["success"], old["difference"]) == (0.3, None)
    assert new["name"] == "runs/new"
    assert new["difference"]["mean"] == pytest.approx(0.4)
    assert new["p_value"] == pytest.approx(14 / 64)


def test_compare_as_a_table(cli: Cli) -> None:
    make_run("old", "0000000000")
    make_run("new", "111111110x")
    lines = cli("compare", "new", "old", "--baseline", "old").out.splitlines()
    assert lines[0].startswith("run\tsuccess\t95 % interval")
    cells = lines[1].split("\t")
    assert cells[:2] == ["new", "88.9 %"]
    assert cells[5:7] == ["1", "9"]
    assert cells[7].startswith("+88.9 [")


def test_compare_says_when_nothing_is_shared(cli: Cli) -> None:
    make_run("old", "01")
    make_run("new", "01", prefix="other")
    assert "note: new shares no scored task with old" in cli("compare", "old", "new").error
    assert quintain.compare("runs/old", "runs/new").notes == ("runs/new shares no scored task with runs/old",)


def test_compare_notes_what_else_is_different(cli: Cli) -> None:
    def write(name: str, **config: str) -> None:
        with Run.create(Path("runs", name), recipe="test", config=config) as run:
            run.append(episodes("01"), step=0, phase="eval")
            run.commit(0, evaluate(episodes("01")).metrics())

    write("a", environment="guess", agent="triage.py:run", model="tiny")
    write("b", environment="guess", agent="stock.py:run", model="tiny")
    write("c", environment="guess", agent="triage.py:run", model="mini")
    write("d", environment="other", agent="triage.py:run", model="tiny")
    assert cli("compare", "a", "b").error == (
        "quintain: note: these runs do not act through the same agent, so that they differ in more than their "
        "training: a triage.py:run, b stock.py:run\n"
    )
    (note,) = quintain.compare("runs/a", "runs/b").notes
    assert note.endswith("training: runs/a triage.py:run, runs/b stock.py:run"), "as the command says"
    assert "do not begin with the same model" in cli("compare", "a", "c").error
    assert "not evaluated on the same tasks: a in guess, d in other" in cli("compare", "a", "d").error
    write("e", environment="guess", agent="triage.py:run", model="tiny")
    assert cli("compare", "a", "e").error == ""


def test_compare_refuses_what_is_wrong(cli: Cli) -> None:
    make_run("old", "01")
    with Run.create(Path("runs/empty"), recipe="test", config={}) as run:
        run.commit(0, {"train/loss": 1.0})
    assert cli("compare", "old").line == "a comparison needs two runs or more: got 1; name another run"
    assert cli("compare", "old", "old").line.startswith("quintain compare: got 'old' twice")
    assert "the runs in runs are empty, old" in cli("compare", "old", "odl").line
    assert cli("compare", "old", "empty").status == 5


def test_compare_draws_the_runs_into_one_picture(cli: Cli) -> None:
    make_run("old", "0000000000")
    make_run("new", "1111111101")
    lines = cli("compare", "old", "new", "--picture", "both.png").out.splitlines()
    assert lines[-1] == "picture  both.png"
    assert Path("both.png").read_bytes().startswith(b"\x89PNG")
    said = "--picture: got 'both.jpg'; give a file that ends with .png"
    found = cli("compare", "old", "new", "--picture", "both.jpg")
    assert (found.status, found.line) == (2, said)


def test_runs_of_other_seeds_are_one_arm() -> None:
    configs = {
        "a": {"seed": 1, "task_offset": 0, "tasks": 4, "rate": 1},
        "b": {"seed": 1, "task_offset": 0, "tasks": 4, "rate": 2},
        "c": {"seed": 2, "task_offset": 9, "tasks": 4, "rate": 1},
    }
    assert arms_of(configs) == {"rate 1": ["a", "c"], "rate 2": ["b"]}
    assert arms_of({"a": configs["a"], "c": configs["c"]}) == {"a": ["a"], "c": ["c"]}
    assert list(arms_of({"a": {"shuffled": True}, "b": {"shuffled": False}})) == [
        "with shuffled",
        "without shuffled",
    ]


def test_collect_writes_a_run(cli: Cli, launcher: Launcher) -> None:
    launcher.answer = (episodes("110x"), tokenizer())
    found = cli(
        "collect", "guess", "--agent", "random", "--episodes", "4", "--out", "data", "--split", "eval"
    )
    assert (found.status, found.out) == (0, "data: success 66.7 % [20.8, 93.9], 3 episodes, 1 failed\n")
    settings = {
        "episodes": 4,
        "seed": 0,
        "split": "eval",
        "harness": "",
        "task_offset": 0,
        "expert_noise": 0.0,
    }
    assert launcher.calls == [("collect", "guess", "random", {**settings, "attempts": 1, **ALONE})]
    with Run.open(Path("data"), writable=False) as run:
        assert list(run.trajectories()) == episodes("110x")
        assert (run.recipe, run.status) == ("collect", "done")
        assert run.config == {"environment": "guess", "agent": "random", "seed": 0, "split": "eval"}


def test_collect_writes_messages_without_failures(cli: Cli, launcher: Launcher) -> None:
    launcher.answer = (episodes("10x"), tokenizer())
    assert cli("collect", "guess", "--out", "data.jsonl").status == 0
    records = [json.loads(line) for line in Path("data.jsonl").read_text().splitlines()]
    assert [record["reward"] for record in records] == [1.0, 0.0]
    assert [message["role"] for message in records[0]["messages"]] == ["system", "user", "assistant"]
    assert records[0]["messages"][0]["content"].startswith("Find the hidden number")
    assert [path.name for path in Path().iterdir()] == ["data.jsonl"]


def test_collect_with_nothing_to_learn_from_leaves_no_file(cli: Cli, launcher: Launcher) -> None:
    launcher.answer = (episodes("x"), tokenizer())
    found = cli("collect", "guess", "--out", "data.jsonl")
    assert (found.status, list(Path().iterdir())) == (5, [])
    assert found.line.startswith("messages for data.jsonl: got no episode that ended")


def test_a_collected_run_can_be_exported_as_messages(cli: Cli, launcher: Launcher) -> None:
    launcher.answer = (episodes("10x"), tokenizer())
    cli("collect", "guess", "--out", "data")
    found = cli("export", "data", "--to", "messages", "--out", "data.jsonl")
    assert (found.status, found.out) == (0, "data.jsonl: 2 episodes\n")


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ([], "quintain collect needs --out: got nothing; give a new file, .jsonl, or a new folder"),
        (["--out", "a.csv"], "--out: got 'a.csv'; give a file that ends in .jsonl, or a folder"),
        (["--out", "there"], "--out: got 'there', which exists; choose another name"),
        (["--out", "new", "--split", "tran"], "--split: got 'tran'; did you mean 'train'?"),
        (["--out", "new", "--task-offset", "-1"], "--task-offset must be at least 0: got -1; give 0 or more"),
        (["--out", "new", "--episodes", "0"], "--episodes must be at least 1: got 0; give 1 or more"),
        (["--out", "new", "--expert-noise", "1.5"], "--expert-noise: got 1.5; give a share from 0 to 1"),
    ],
)
def test_collect_refuses_what_is_wrong(cli: Cli, launcher: Launcher, argv: list[str], line: str) -> None:
    Path("there").mkdir()
    found = cli("collect", "guess", *argv)
    assert (found.status, found.line) == (2, line)
    assert launcher.calls == []


def test_a_run_without_an_environment_is_not_measured_by_one(tmp_path: Path) -> None:
    with Run.create(tmp_path / "one", recipe="sft", config={"environment": NO_ENVIRONMENT}) as run:
        run.commit(0, {"eval/loss": 1.25})
    with pytest.raises(
        UsageError, match=r"a run without an environment, .* held-out loss was 1\.250 at step 0"
    ):
        api.evaluate(tmp_path / "one")
