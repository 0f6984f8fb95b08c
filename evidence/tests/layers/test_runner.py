"""Blocks are measured once, failures stay on record, a changed claim is another version."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quintain.cli.main import main
from quintain.errors import DataError
from quintain_evidence.layers.records import append, lines
from quintain_evidence.layers.runner import code_digest, method_digest, run, state_of, wanted
from quintain_evidence.layers.spec import Signature

Claim = Callable[..., Signature]


class Silent:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.num, self.texts = 0, list[str]()

    def total(self, num: int) -> None:
        self.num += num

    def advance(self, text: str) -> None:
        self.texts.append(text)


def go(claim: Signature, folder: Path, jobs: int = 1) -> tuple[Any, Silent]:
    told = Silent()
    return run([claim], folder, jobs, lambda s: f"measure {s.row}", told)[claim.row], told


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Put a function in the place of the example's `measure`."""
    import quintain_evidence.experiments.example as example

    return lambda function: monkeypatch.setattr(example, "measure", function)


def test_a_claim_is_measured_once_and_goes_on_where_it_was(claim: Claim, tmp_path: Path) -> None:
    state, told = go(claim(), tmp_path)
    assert state.word() == "shown" and told.num == 3 and len(told.texts) == 3
    found = lines(tmp_path, "toy")
    assert [line["block"] for line in found] == [0, 1, 2]
    assert {line["seed"] for line in found} == {claim().seed_of(k) for k in range(3)}
    assert {
        "command",
        "package",
        "processor",
        "date",
        "seconds",
        "processor_seconds",
        "spec",
        "version",
        "experiment",
    } <= set(found[0])
    assert go(claim(), tmp_path)[1].num == 0
    (tmp_path / "toy.jsonl").write_text(
        "".join(line + "\n" for line in (tmp_path / "toy.jsonl").read_text().splitlines()[:2]),
        encoding="utf-8",
    )
    state, told = go(claim(), tmp_path)
    assert told.num == 1 and state.word() == "shown"
    assert lines(tmp_path, "toy")[2]["measurements"] == found[2]["measurements"], "the seed is the block's"


def test_a_changed_claim_is_another_version_and_the_first_stays(claim: Claim, tmp_path: Path) -> None:
    go(claim(), tmp_path)
    state, told = go(claim(least=0.9), tmp_path)
    assert (state.version, state.word(), told.num, state.num_lines) == (2, "not shown", 3, 6)
    assert state_of(claim(), tmp_path).version == 1
    first, second = (
        [line["seed"] for line in lines(tmp_path, "toy") if line["version"] == k] for k in (1, 2)
    )
    assert not set(first) & set(second)


def test_a_failure_is_recorded_and_tried_again_with_the_next_call(
    claim: Claim, tmp_path: Path, experiment: Callable[[Callable[..., Any]], None]
) -> None:
    from quintain_evidence.experiments.example import measure

    def breaks(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
        if options["block"] == 1:
            raise RuntimeError("no room")
        return measure(options, seed)

    experiment(breaks)
    state, told = go(claim(), tmp_path)
    assert state.word() == "failed" and state.num_failed == 1 and len(state.blocks) == 2
    assert "toy block 1: RuntimeError: no room" in told.texts
    line = next(line for line in lines(tmp_path, "toy") if line["block"] == 1)
    assert line["error"] == "RuntimeError: no room" and "breaks" in line["trace"]
    assert 'File "quintain_evidence/layers/runner.py"' in line["trace"], (
        "where a machine keeps it is left out"
    )
    experiment(measure)
    state, told = go(claim(), tmp_path)
    assert state.word() == "shown" and told.num == 1 and state.num_lines == 4


@pytest.mark.parametrize(
    ("value", "message"), [(float("nan"), "got nan for method"), (None, "got 0 replications; return 24")]
)
def test_what_is_no_number_is_a_failure(
    claim: Claim,
    tmp_path: Path,
    experiment: Callable[[Callable[..., Any]], None],
    value: float | None,
    message: str,
) -> None:
    experiment(lambda _o, _s: [] if value is None else [{"method": value}] * 24)
    state, told = go(claim(), tmp_path)
    assert state.word() == "failed" and all(message in text for text in told.texts)


@pytest.mark.slow
def test_processes_measure_the_same(claim: Claim, tmp_path: Path) -> None:
    alone, together = (go(claim(), tmp_path / str(jobs), jobs)[0] for jobs in (1, 2))
    assert alone.blocks == together.blocks


def test_training_stops_where_its_sequence_may(
    claim: Claim, tmp_path: Path, experiment: Callable[[Callable[..., Any]], None]
) -> None:
    def rises(options: Mapping[str, Any], _seed: int) -> Sequence[Mapping[str, float]]:
        effect = 0.5 + 0.01 * options["block"]
        return [{"method": effect, "control": 0.0, "null_method": 0.0, "null_control": 0.0}]

    training = claim(kind="training", direction="higher", blocks=16)
    experiment(rises)
    state, _ = go(training, tmp_path)
    assert state.word() == "shown" and len(state.blocks) == 6 and wanted(state) == []
    unclear = claim(kind="training", direction="higher", blocks=10, least=0.6)
    assert len(go(unclear, tmp_path)[0].blocks) == 10
    falls = claim(kind="training", direction="lower", blocks=10)
    state = go(falls, tmp_path)[0]
    assert len(state.blocks) == 6 and state.verdict.is_futile and state.word() == "not shown"


def test_results_of_other_code_are_measured_again(
    claim: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(claim(), tmp_path)
    monkeypatch.setattr("quintain_evidence.layers.runner.code_digest", lambda _s: "another")
    state = state_of(claim(), tmp_path)
    assert state.is_stale and state.word() == "not run"
    state, told = go(claim(), tmp_path)
    assert told.num == 3 and not state.is_stale and state.version == 1


def test_results_of_another_form_of_the_method_are_measured_again(
    claim: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines from before the method's file was recorded stand; those that say another one do not."""
    monkeypatch.setattr("quintain_evidence.layers.runner.MODULES", {"toy": "quintain.methods.rl.grpo"})
    state, _ = go(claim(), tmp_path)
    now = lines(tmp_path, "toy")[0]["method"]
    assert now == method_digest(claim()) != "" and state.word() == "shown"
    monkeypatch.setattr("quintain_evidence.layers.runner.MODULES", {"toy": "quintain.methods.rl.rloo"})
    assert state_of(claim(), tmp_path).is_stale
    renamed = {"layer": "rename", "row": "toy", "before": now, "after": method_digest(claim())}
    append(tmp_path, "toy", renamed)
    assert not state_of(claim(), tmp_path).is_stale, "the same but for names"
    file = tmp_path / "toy.jsonl"
    without = [{k: v for k, v in line.items() if k != "method"} for line in lines(tmp_path, "toy")[:3]]
    file.write_text("", encoding="utf-8")
    for line in without:
        append(tmp_path, "toy", line)
    assert not state_of(claim(), tmp_path).is_stale
    outdated = claim(outdated="The claim: another β.")
    assert state_of(outdated, tmp_path).is_stale and wanted(state_of(outdated, tmp_path)) == [0, 1, 2]
    assert not state_of(replace(outdated, outdated_layers=("league",)), tmp_path).is_stale
    state, _ = go(outdated, tmp_path)
    assert not state.is_stale and state.version == 1 and wanted(state) == []
    monkeypatch.setattr("quintain_evidence.layers.runner.MODULES", {})
    assert method_digest(claim()) == ""


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    append(tmp_path, "toy", {"layer": "signature", "block": 0})
    with (tmp_path / "toy.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"layer": "sig')
    assert len(lines(tmp_path, "toy")) == 1
    append(tmp_path, "toy", {"layer": "league", "block": 1})
    assert [line["block"] for line in lines(tmp_path, "toy")] == [0, 1]
    assert [line["block"] for line in lines(tmp_path, "toy", "league")] == [1]
    with (tmp_path / "toy.jsonl").open("a", encoding="utf-8") as file:
        file.write("{]}\n")
    with pytest.raises(DataError, match=r"toy.jsonl line 4: got no JSON; restore the file"):
        lines(tmp_path, "toy")


def test_the_code_of_an_experiment_is_what_it_computes(claim: Claim) -> None:
    assert len(code_digest(claim())) == 12


def test_the_command_line_measures_and_tells(
    write_claim: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_claim().parent
    words = ["bench", "methods", "--family", "toys", "--layer", "signature", "--signatures", str(folder)]
    assert main([*words, "--results", str(tmp_path / "results")]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].split("\t")[:3] == ["toy", "1", "shown"]
    assert "toy\t✓ null world\t" in out
    assert main([*words, "--results", str(tmp_path / "results"), "--json"]) == 0
    assert '"verdict": "shown"' in capsys.readouterr().out
    assert main([*words, "--layer", "signatures"]) == 2
