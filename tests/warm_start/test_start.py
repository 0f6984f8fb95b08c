from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
import torch
from tests.build import shorten_corpus

from quintain.curriculum.streams import TaskStream
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, begin, tool_action
from quintain.environments.tools import tool
from quintain.errors import ConfigError, DataError, UsageError
from quintain.learning.learner import Learner
from quintain.learning.train_config import TrainConfig
from quintain.models.adapters import has_adapters
from quintain.rollout.progress import Display
from quintain.types import Batch
from quintain.warm_start import start
from quintain.warm_start.start import (
    Imitation,
    NewModel,
    demonstrate,
    fitting_tokens,
    fumble_action,
    harness,
    has_free_text,
    imitation_lr,
    make_start,
    new_model,
    teacher,
    warm_start,
)


class NoExpert(Environment):
    """A world of one tool, whose reward is for using it."""

    def reset(self, task: Any) -> str:
        return "Pick a number between 1 and 9."

    @tool
    def pick(self, number: int) -> str:
        """Pick a number."""
        return "again"


def test_the_form_teacher_now_and_then_writes_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = NoExpert()
    begin(environment, environment.task("train", 0))
    seen = ("Pick a number between 1 and 9.",)
    monkeypatch.setattr(start, "FUMBLES", 0.0)
    assert fumble_action(environment, Random(0), seen).tool_calls[0].name == "pick"
    monkeypatch.setattr(start, "FUMBLES", 1.0)
    broken = fumble_action(environment, Random(0), seen)
    assert not broken.tool_calls
    whole = '<tool_call>{"name": "pick", "arguments": {"number": 7}}</tool_call>'
    assert 0 < len(whole) - len(broken.text) <= 9


def test_who_teaches() -> None:
    assert teacher(NoExpert) is fumble_action
    assert teacher(find("guess")) is start.expert_action
    with pytest.raises(
        ConfigError, match=r"expert_noise: got 0.3 with environment .*NoExpert, .*; give it expert_action"
    ):
        teacher(NoExpert, expert_noise=0.3)


@pytest.mark.slow
def test_a_teacher_that_errs_takes_longer_and_repeats() -> None:
    make = find("keydoor")
    _, tokenizer = make_start("micro", make, seed=0)
    agent = harness(TrainConfig(), tokenizer, make)

    def num_turns(mistakes: float) -> list[int]:
        shown = demonstrate(agent, make, count=6, seed=0, expert_noise=mistakes)
        return [len(trajectory.turns) for trajectory in shown]

    assert sum(num_turns(0.5)) > sum(num_turns(0.0))
    assert num_turns(0.5) == num_turns(0.5)


def test_demonstrations_of_the_form_show_how_a_call_goes_on_after_a_failed_one() -> None:
    make = NoExpert
    _, tokenizer = make_start("micro", make, seed=0)
    shown = demonstrate(harness(TrainConfig(), tokenizer, make), make, count=6, seed=0)
    turns = [turn for trajectory in shown for turn in trajectory.turns]
    share = sum(turn.action.error is not None for turn in turns) / len(turns)
    assert 0.05 < share < 0.3
    assert len(TaskStream(make).draw(0, 6)) == len(shown)
    assert tool_action("pick", number=1).tool_calls


class Silent:
    """A display that shows nothing."""

    def phase(self, title: str, total: int) -> None:
        """Show nothing."""

    def advance(self) -> None:
        """Show nothing."""


def test_the_warm_up_does_not_imitate_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = make_start("micro", NoExpert, seed=0)
    agent = harness(TrainConfig(), tokenizer, NoExpert)
    monkeypatch.setattr(start, "FUMBLES", 1.0)
    shown = demonstrate(agent, NoExpert, count=2, seed=0)
    unreadable = [replace(t, turns=tuple(turn for turn in t.turns if turn.action.error)) for t in shown]
    assert all(trajectory.turns for trajectory in unreadable)
    with pytest.raises(DataError, match="without a trained token"):
        warm_start(model, unreadable, TrainConfig(imitation_epochs=1), display=cast(Display, Silent()))


@pytest.mark.parametrize("is_new", [True, False])
def test_the_warm_start_trains_what_the_policy_trains(tmp_path: Path, is_new: bool) -> None:
    """Layers of LoRA leave embeddings and norms alone, and change a weight by a matrix of their rank.

    A model made from nothing has no base that they could stand on: all of its weights imitate.
    """
    make = find("keydoor?rooms=1")
    model, tokenizer = make_start("micro", make, seed=0)
    name = "micro" if is_new else str(tmp_path)
    config = TrainConfig(model=name, imitation_epochs=1, lora_rank=2, lora_alpha=4.0, imitation_lr=1e-2)
    before = {key: weight.clone() for key, weight in model.state_dict().items()}
    shown = demonstrate(harness(config, tokenizer, make), make, count=16, seed=0)
    warm_start(model, shown, config, display=cast(Display, Silent()))
    after = model.state_dict()
    assert after.keys() == before.keys() and not has_adapters(model)
    changes = {key: after[key] - before[key] for key in before if not torch.equal(after[key], before[key])}
    ranks = {
        key: int(torch.linalg.matrix_rank(own, rtol=1e-3)) for key, own in changes.items() if own.ndim == 2
    }
    if is_new:
        assert any("embed" in key for key in changes) and max(ranks.values()) > 2
    else:
        assert changes and all("_proj" in key for key in changes) and max(ranks.values()) <= 2
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_rate_of_the_warm_start_falls_and_every_pass_has_an_order_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is learned last is learned most gently; a sum over all steps of rates is half of them."""
    make = find("keydoor?rooms=1")
    config = TrainConfig(imitation_epochs=3)
    model, tokenizer = make_start("micro", make, seed=0)
    shown = demonstrate(harness(config, tokenizer, make), make, count=24, seed=0)
    seen: list[tuple[float, tuple[int, ...]]] = []

    def step(_: Learner, batches: list[Batch], __: Any, *, rate_scale: float) -> None:
        seen.append((rate_scale, tuple(batches[0].token_ids.tolist())))

    monkeypatch.setattr(Learner, "step", step)
    warm_start(model, shown, config, display=cast(Display, Silent()))
    assert [rate for rate, _ in seen] == pytest.approx([1 - n / 9 for n in range(9)])
    assert len({tokens for _, tokens in seen}) == 9, "each pass draws its batches anew"
    again: list[int] = list(Imitation(Learner(model), shown, config.imitation_epochs, config.seed).run())
    assert again == list(range(9)) and [rate for rate, _ in seen[9:]] == [1.0] * 9
    assert [tokens for _, tokens in seen[9:]] == [tokens for _, tokens in seen[:9]], (
        "and in the same way again"
    )


def test_a_new_model_is_named_by_its_size_and_what_its_tokens_span() -> None:
    assert new_model("mini") == NewModel("mini", "")
    assert new_model("mini?tokens=words") == NewModel("mini", "words")
    assert new_model("auto?tokens=runs") == NewModel("auto", "runs")
    assert new_model("folder/mini") is None


def test_tokens_are_runs_where_a_tool_takes_a_text_of_ones_own() -> None:
    assert fitting_tokens(find("desk")) == fitting_tokens(find("hopqa")) == "runs"
    assert fitting_tokens(find("guess")) == fitting_tokens(find("keydoor")) == "phrases"
    assert has_free_text({"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}})
    assert not has_free_text({"type": "object", "properties": {"a": {"type": "string", "enum": ["x", "y"]}}})


@pytest.mark.parametrize(("spec", "width"), [("guess", 128), ("hopqa", 64)])
def test_the_new_model_of_a_run_is_narrower_where_texts_are_copied(
    spec: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_corpus(monkeypatch, 2)
    model, _ = make_start(TrainConfig().model, find(spec), seed=0)
    assert model.config.hidden_size == width
    assert imitation_lr(model) == pytest.approx({128: 0.002, 64: 0.001}[width])
    assert imitation_lr(model, 1e-3) == 1e-3


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("mini?tokens=word", r"got 'mini\?tokens=word'; did you mean 'words'"),
        ("mini?layers=3", r"got 'mini\?layers=3' with layers; its one option is tokens"),
        ("mini?words", "tokens=words"),
    ],
)
def test_a_new_model_that_cannot_be_made_is_refused(spec: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        new_model(spec)
