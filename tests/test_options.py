"""The options of methods as types: the file is current, and a checker knows by it what a script gets wrong."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "docs" / "options.py"
SCRIPT = """
import quintain
from quintain.methods.rl import rloo


class Coin(quintain.Environment):
    pass


run = quintain.train("grpo", environment=Coin, steps=50, group_size=8, clip_low=0.1, tasks="tickets.jsonl")
print(run.best, quintain.train("mine.py", steps=3, config={"own": 1}), quintain.train(rloo.method, seed=1))
for name in ("grpo", "rloo"):
    quintain.train(name, run=name, group_size=8)
quintain.train("grpo", group_sise=8)
quintain.train("grpo", steps="many")
quintain.train("grpo", overlong="never")
quintain.train("grpo", critic_lr_scale=2.0)
quintain.train("sft", group_size=8)
"""


def test_the_types_of_options_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(PROGRAM), "--check"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(PROGRAM), run_name="__main__")
    assert ended.value.code == 0, "run python docs/options.py"


def test_types_that_are_not_current_are_told_and_written(tmp_path: Path) -> None:
    program = runpy.run_path(str(PROGRAM))
    main, stub = program["main"], tmp_path / "options.pyi"
    main.__globals__["STUB"] = stub
    assert main(True) == 1 and not stub.exists(), "a check writes nothing"
    assert main(False) == 0 == main(True)
    assert stub.read_text(encoding="utf-8") == program["stub_text"]()


@pytest.mark.slow
def test_a_wrong_option_of_a_script_is_found_by_a_checker(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    settings = {"extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "-p",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = {each["range"]["start"]["line"] for each in found if each["severity"] == "error"}
    wrong = SCRIPT.splitlines()[-5:]
    assert sorted(SCRIPT.splitlines()[line] for line in lines) == sorted(wrong), found
