"""Every method trains, writes its curve, and continues after an interruption as if there had been none."""

import gc
import hashlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.build import shorten_corpus
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from quintain.config import build
from quintain.credit.layout import Critic
from quintain.dashboard.report import report_body
from quintain.environments.protocol import Environment
from quintain.errors import ConfigError, DataError
from quintain.learning.policies import Policy
from quintain.methods.find import find_method
from quintain.methods.loops import offline
from quintain.methods.rl import ppo
from quintain.runs.collector import Collector
from quintain.runs.context import TrainingContext
from quintain.store.run import Run
from quintain.types import Action, Example, Group, Sample, Score, StepResult, Stop, Task, Trajectory

SMALL: dict[str, Any] = {
    "model": "micro",
    "demonstrations": 4,
    "imitation_epochs": 1,
    "steps": 2,
    "eval_every": 5,
    "eval_episodes": 4,
    "learning_rate": 3e-3,
    "max_turn_tokens": 16,
}
SIZES: dict[str, dict[str, Any]] = {
    "dpo": {"tasks": 4, "group_size": 3, "batch_size": 2},
    "grpo": {"tasks": 2, "group_size": 4},
    "ire_vla": {"episodes": 4, "every": 1, "updates": 2, "batch_size": 4},
    "ppo": {"episodes": 4},
    "quickstart": {"tasks": 2, "group_size": 4},
    "rft": {"tasks": 2, "group_size": 4},
    "sft": {"batch_size": 3},
}
ON_POLICY = ("grpo", "ppo", "quickstart", "rft")
CLOCKS = ("time/", "machine/", "tokens_per_second")


class Coin(Environment):
    """Say heads or tails; half of what is neither is let pass, so that chance succeeds now and then."""

    max_turns = 2

    def reset(self, task: Task) -> str:
        self.side = "heads" if task.rng.random() < 0.5 else "tails"
        return "The coin is in the air."

    def step(self, action: Action) -> StepResult:
        is_right = action.text == self.side or sum(map(ord, action.text)) % 2 == 1
        return StepResult(observation="It fell.", reward=float(is_right), is_terminated=is_right)

    def legal_actions(self) -> tuple[str, ...]:
        return ("heads", "tails")

    def expert_action(self) -> Action:
        return Action(text=self.side)


class Hopeless(Coin):
    """Nothing helps."""

    def step(self, action: Action) -> StepResult:
        return StepResult(observation="It rolls on.")


pytestmark = pytest.mark.usefixtures("quick")


def config_of(recipe: str, **fields: Any) -> Any:
    values = {"environment": f"{__file__}:Coin", **SMALL, **SIZES.get(recipe, {}), **fields}
    return find_method(recipe).config_class(**values)


def train(recipe: str, folder: Path, **fields: Any) -> Path:
    config = config_of(recipe, **fields)
    with Run.create(folder, recipe=recipe, config=asdict(config)) as run:
        find_method(recipe).make(config).train(run, config)
    return folder


@pytest.mark.slow
def test_a_run_that_ended_keeps_no_model_in_memory(tmp_path: Path) -> None:
    def models() -> int:
        return sum(issubclass(type(thing), PreTrainedModel) for thing in gc.get_objects())

    gc.collect()
    before = models()
    gc.disable()  # what is in a circle stays
    try:
        train("grpo", tmp_path / "run")
        assert models() == before
    finally:
        gc.enable()


def resume(folder: Path) -> None:
    with Run.open(folder) as run:
        found = find_method(run.recipe)
        config = build(found.config_class, run.config, str(folder), is_stored=True)
        found.make(config).train(run, config)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The curve without what the clock says."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(CLOCKS)} for line in lines]


def weights(folder: Path) -> dict[str, str]:
    files = sorted(folder.glob("model*.safetensors"))
    assert files
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def interrupting(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Ask every run to stop once `step` is committed."""
    record: Callable[..., None] = TrainingContext.record

    def record_and_ask(context: TrainingContext, committed: int, *rest: Any) -> None:
        record(context, committed, *rest)
        context.interruption.is_asked = committed == step

    monkeypatch.setattr(TrainingContext, "record", record_and_ask)


QUICK = frozenset({"grpo", "sft", "rft"})
"""One of each loop; `tests/methods/test_loops.py` has that of a buffer."""


@pytest.mark.parametrize(
    "recipe",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(SIZES)],
)
def test_a_recipe_trains_and_resumes_bit_for_bit(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(recipe, tmp_path / "whole")
    curve = rows(whole)
    assert [row["step"] for row in curve] == [0, 1, 2]
    assert weights(whole / "start") != weights(whole / "model")
    for row in (curve[0], curve[-1]):
        assert 0 <= row["eval/low"] <= row["eval/success"] <= row["eval/high"] <= 1
    assert all("train/loss" in row or row.get("train/success") in (0, 1) for row in curve[1:])
    if recipe in ON_POLICY:
        assert all("train/success" in row for row in curve[1:])
    timed = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    seconds = [row["time/seconds"] for row in timed]
    assert seconds == sorted(seconds)

    stopped = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        interrupting(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, stopped)
    assert not (stopped / "model").exists()
    with Run.open(stopped, writable=False) as run:
        assert (run.status, run.next_step, run.last_step) == ("interrupted", 2, 1)
    resume(stopped)
    assert weights(stopped / "model") == weights(whole / "model")
    assert weights(stopped / "start") == weights(whole / "start")
    assert rows(stopped) == curve
    with Run.open(stopped, writable=False) as run:
        assert run.status == "done"
        assert not [event for event in run.events() if event["kind"] == "drift"]


@pytest.mark.parametrize(
    ("recipe", "environment"),
    [
        pytest.param("grpo", "guess?max_turns=1&high=3", marks=pytest.mark.slow),
        ("sft", "keydoor?rooms=1"),
    ],
)
def test_the_catalogue_trains_too(recipe: str, environment: str, tmp_path: Path) -> None:
    folder = train(recipe, tmp_path / "run", environment=environment, steps=1)
    assert [row["step"] for row in rows(folder)] == [0, 1]
    for name in ("start", "model"):
        model = AutoModelForCausalLM.from_pretrained(folder / name)
        tokenizer = AutoTokenizer.from_pretrained(folder / name)
        assert model.config.vocab_size == len(tokenizer)
    resume(folder)
    assert len(rows(folder)) == 2
    reused = train(recipe, tmp_path / "again", environment=environment, steps=1, model=str(folder / "model"))
    assert weights(reused / "start") != weights(folder / "start")


def test_other_seeds_make_other_runs(tmp_path: Path) -> None:
    first, second = (train("rft", tmp_path / f"s{seed}", seed=seed, steps=1) for seed in (0, 1))
    assert weights(first / "start") != weights(second / "start")


@pytest.mark.slow
def test_a_signal_ends_a_process_between_two_steps(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]);"
        "import quintain.warm_start.corpus as c; c.NUM_EPISODES = 4;"
        "from quintain.methods.rl import grpo; from quintain.store.run import Run; from dataclasses import asdict;"
        "config = grpo.Config(environment='guess?max_turns=1&high=3', model='micro', demonstrations=2, steps=100000,"
        " imitation_epochs=1, eval_every=100000, eval_episodes=2, tasks=1, group_size=2, max_turn_tokens=8)\n"
        "with Run.create(Path(sys.argv[1]), recipe='grpo', config=asdict(config)) as run:"
        " grpo.method(config).train(run, config)"
    )
    folder = tmp_path / "run"
    source = str(Path(sys.modules["quintain"].__path__[0]).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder), source], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 270
    curve = folder / "metrics.jsonl"
    while not (curve.exists() and curve.read_text().count("\n") >= 2):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in error
    with Run.open(folder, writable=False) as run:
        assert run.status == "interrupted"
        assert run.last_step is not None
        assert run.next_step == run.last_step + 1 >= 2


def test_pairs_need_outcomes_that_differ(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"pairs from 4 tasks: got none whose episodes differ in outcome"):
        train("dpo", tmp_path / "run", environment=f"{__file__}:Hopeless")


def dpo_losses(folder: Path, **options: Any) -> list[float]:
    """Return the losses of the two steps of a run of DPO."""
    train("dpo", folder, environment=f"{__file__}:Coin", seed=3, **options)
    with Run.open(folder, writable=False) as run:
        return [row["train/loss"] for row in run.metrics() if row.get("train/loss") is not None]


@pytest.fixture(scope="module", name="plain_losses")
def _plain_losses(tmp_path_factory: pytest.TempPathFactory) -> list[float]:  # pyright: ignore[reportUnusedFunction]
    with pytest.MonkeyPatch.context() as patched:
        torch.set_num_threads(1)
        shorten_corpus(patched)
        return dpo_losses(tmp_path_factory.mktemp("plain") / "run")


@pytest.mark.parametrize(
    "options",
    [
        {"label_smoothing": 0.1},
        {"by_length": True, "imitation_weight": 0.0},
        {"compares_ends": False},
        {"loss": "hinge", "compares_ends": False},
        {"loss": "ipo", "by_length": True},
        {"loss": "simpo", "beta": 2.0, "imitation_weight": 0.0},
        {"loss": "orpo", "imitation_weight": 1.0},
    ],
    ids=str,
)
def test_other_losses_on_pairs_are_learned_from(
    options: dict[str, Any], tmp_path: Path, plain_losses: list[float]
) -> None:
    """Each differs from the usual within two steps: at the start, where both policies are one, some say the same."""
    losses = dpo_losses(tmp_path / "run", **options)
    assert len(plain_losses) == len(losses) == 2
    assert all(math.isfinite(loss) for loss in losses) and losses != plain_losses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": "ipo", "label_smoothing": 0.1}, "label_smoothing: got 0.1 with the loss ipo"),
        ({"loss": "simpo", "by_length": True}, "by_length, compares_ends: got True and True with simpo"),
        ({"loss": "orpo", "imitation_weight": 0.0}, "imitation_weight: got 0.0 with orpo"),
    ],
)
def test_losses_on_pairs_refuse_what_they_have_not(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        train("dpo", tmp_path / "run", environment=f"{__file__}:Coin", **options)


def test_a_few_of_the_demonstrations_are_imitated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    samples_of = offline.make_samples

    def samples(data: list[Example], longest: int) -> list[list[Sample]]:
        seen.append([example.trajectory.task.id for example in data])
        return samples_of(data, longest)

    monkeypatch.setattr(offline, "make_samples", samples)
    train("sft", tmp_path / "all", demonstrations=4)
    train("sft", tmp_path / "two", demonstrations=4, examples=2)
    assert len(seen[0]) == 4 and seen[1] == seen[0][:2]
    for wrong in (0, 5):
        with pytest.raises(
            ConfigError, match=rf"examples: got {wrong} of 4 demonstrations; give 1 or more, or none"
        ):
            train("sft", tmp_path / f"wrong{wrong}", demonstrations=4, examples=wrong)


def test_imitation_needs_an_episode_that_succeeded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="demonstrations: got 0, which leaves nothing to imitate"):
        train("sft", tmp_path / "none", demonstrations=0)
    with pytest.raises(DataError, match="got 4 episodes into solved and none out of it"):
        train("sft", tmp_path / "hopeless", environment=f"{__file__}:Hopeless")
    train("sft", tmp_path / "failed", environment=f"{__file__}:Hopeless", failures=True)


@pytest.mark.parametrize("recipe", ["grpo", "rft"])
def test_a_step_without_anything_to_learn_from_takes_no_step(recipe: str, tmp_path: Path) -> None:
    folder = train(recipe, tmp_path / "run", environment=f"{__file__}:Hopeless")
    curve = rows(folder)
    assert [row.get("train/success") for row in curve] == [None, 0.0, 0.0]
    assert not any("train/loss" in row for row in curve)
    assert weights(folder / "start") == weights(folder / "model")


def unsampled(task: Task) -> Group:
    """A group whose only episode ended before anything was sampled."""
    empty = Trajectory(
        task=task,
        turns=(),
        outcome=Score(value=0.0, is_success=False),
        stop=Stop.MAX_TOKENS,
        seed=0,
        group="g",
        index=0,
    )
    return Group(task=task, trajectories=(empty,))


def test_a_critic_and_ppo_bear_a_step_in_which_nothing_was_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Critic] = []
    token_values = Policy.token_values

    def nothing(collector: Collector, _: int, tasks: list[Task], **__: Any) -> list[Group]:
        return [unsampled(task) for task in tasks]

    def valued(policy: Policy, trajectories: list[Trajectory]) -> Critic:
        found.append(token_values(policy, trajectories))
        return found[-1]

    monkeypatch.setattr(Collector, "sample", nothing)
    monkeypatch.setattr(Policy, "token_values", valued)
    folder = train("ppo", tmp_path / "run")
    assert weights(folder / "start") == weights(folder / "model")
    assert all("train/loss" not in row for row in rows(folder))
    assert [(list(each.values), each.final) for each in found] == [([], [])] * 2
    assert ppo.Config().num_epochs == 2


def test_a_mixed_run_says_how_each_world_does(tmp_path: Path) -> None:
    mixed = train(
        "grpo", tmp_path / "mixed", environment="mix:guess@2,bandit?arms=2&pulls=2", tasks=3, eval_episodes=6
    )
    first, *rest = rows(mixed)
    for name, num in (("guess", 4), ("bandit", 2)):
        assert first[f"eval/task/{name}/episodes"] == num
        assert all(0 <= row[f"task/{name}/success"] <= 1 for row in rest)
        assert f"eval/task/{name}/success" in rest[-1]
    wins = [first[f"eval/task/{name}/success"] * num for name, num in (("guess", 4), ("bandit", 2))]
    assert first["eval/success"] * 6 == pytest.approx(sum(wins))


@pytest.mark.slow
def test_the_journal_names_what_was_imitated_and_what_it_weighed(tmp_path: Path) -> None:
    with Run.open(train("sft", tmp_path / "sft", demonstrations=6, batch_size=3), writable=False) as run:
        shown = {t.id: t for t in run.trajectories(step=0, phase="demonstrations")}
        for step in (1, 2):
            uses = [use for _, use in run.uses(step)]
            assert len({use.episode for use in uses}) == 3 and {use.episode for use in uses} <= set(shown)
            total = 0.0
            for use in uses:
                assert use.signals is not None and use.signals.weights is not None
                assert len(use.signals.weights) == shown[use.episode].num_sampled
                assert use.signals.logprobs is not None and (use.signals.logprobs < 0).all()
                total += float(use.signals.weights.sum())
            assert total == pytest.approx(1.0)
    with Run.open(train("rft", tmp_path / "rft"), writable=False) as run:
        assert "<h2>Data</h2>" in report_body(run, None)
        for row in run.metrics("train"):
            uses = [use for _, use in run.uses(row["step"])]
            assert len(uses) == row.get("data/kept", 0)
            own = {t.id: t for t in run.trajectories(step=row["step"], phase="train")}
            assert all(own[use.episode].is_success and use.signals is not None for use in uses)
    with Run.open(train("sft", tmp_path / "off", records_signals=False), writable=False) as run:
        assert not list(run.uses(1))
