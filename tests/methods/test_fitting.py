"""What follows from a pretrained model, what was given in its place, and what is said of both."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

import quintain
from quintain.config import build
from quintain.learning.train_config import TrainConfig
from quintain.methods.find import FoundMethod, find_method
from quintain.methods.fitting import Fitted, fit_config, fit_to_model, free_options, num_conversations
from quintain.methods.method import traits_of
from quintain.methods.rl import grpo
from quintain.models.origin import Origin, find_origin
from quintain.models.save import save
from quintain.models.tiny import COPIES, build_tiny
from quintain.store.run import Run
from quintain.text.tokenizer import train_tokenizer

SMALL = Origin(is_pretrained=True, num_parameters=134_515_008)
LARGE = Origin(is_pretrained=True, num_parameters=1_720_574_976)
QWEN = "Qwen/Qwen3-1.7B"


def fit(method: str, origin: Origin, **given: Any) -> tuple[TrainConfig, TrainConfig, Fitted]:
    """Return the configuration as given, as fitted, and what is said."""
    found = find_method(method)
    values = {"model": QWEN, **given}
    config = build(found.config_class, values, "test")
    after = fit_config(found, config, values, origin)
    after.config.check()
    return config, after.config, after


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(["guess 1 to 8", "higher", "lower"], vocab_size=300)


@pytest.fixture
def pretrained(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> Path:
    """Return the folder of a small model that does not say that it was made here."""
    folder = save(build_tiny(tokenizer, size="micro"), tokenizer, tmp_path / "elsewhere")
    config = folder / "config.json"
    values = json.loads(config.read_text(encoding="utf-8"))
    del values[COPIES]
    config.write_text(json.dumps(values), encoding="utf-8")
    return folder


def test_reinforcement_of_a_large_model_trains_lora_layers() -> None:
    before, after, said = fit("grpo", LARGE)
    assert (after.learning_rate, after.lora_rank, after.lora_alpha) == (1e-5, 16, 32.0)
    assert (after.imitation_lr, after.max_turn_tokens, after.gradient_checkpointing) == (1e-4, 512, True)
    assert after.lr_schedule == before.lr_schedule == "method"
    assert len(said.notes) == 1
    assert said.notes[0].startswith(
        "Qwen3-1.7B is pretrained (1.7B parameters), and what was not given fits it: "
    )
    assert "learning_rate 1e-05, lora_rank 16, lora_alpha 32, " in said.notes[0]
    assert said.notes[0].endswith(
        "the learning rate: RL of LoRA layers is run at ten times the 1e-6 of all weights (docs/pretrained.md)"
    )


def test_preferences_of_a_large_model() -> None:
    _, after, _ = fit("eto", LARGE)
    assert (after.learning_rate, after.lora_rank, after.lr_schedule) == (1e-5, 16, "method")
    _, full, _ = fit("eto", LARGE, lora_rank=0)
    assert (full.learning_rate, full.lora_rank, full.lora_alpha) == (5e-7, 0, 16.0)
    _, offline, _ = fit("dpo", LARGE, environment="guess")
    assert (offline.learning_rate, offline.lr_schedule, offline.lr_warmup) == (1e-5, "linear", 6)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("sft", "imitation"),
        ("rft", "imitation"),
        ("steca", "imitation"),
        ("eto", "preference"),
        ("m_dpo", "preference"),
        ("dmpo", "preference"),
        ("agent_q", "preference"),
        ("reward_model", "critic"),
        ("ppo", "reinforcement"),
        ("mucode", "reinforcement"),
        ("digi_rl", "reinforcement"),
    ],
)
def test_kinds(method: str, kind: str) -> None:
    found = find_method(method)
    assert traits_of(found.make(found.config_class())).learns == kind


def test_imitation_goes_three_times_through_its_data(tmp_path: Path) -> None:
    _, after, _ = fit("sft", SMALL, environment="guess")
    values = (
        after.learning_rate,
        after.steps,
        vars_of(after)["batch_size"],
        after.lr_schedule,
        after.lr_warmup,
    )
    assert values == (1e-4, 38, 32, "linear", 4)
    _, after, _ = fit("sft", SMALL, environment="guess", steps=200)
    assert (after.steps, vars_of(after)["batch_size"], after.lr_warmup) == (200, 32, 20), "given steps stay"
    file = tmp_path / "chats.jsonl"
    line = json.dumps(
        {"messages": [{"role": "user", "content": "2 + 2"}, {"role": "assistant", "content": "4"}]}
    )
    file.write_text(f"{line}\n" * 16, encoding="utf-8")
    assert num_conversations(str(file)) == 16
    _, after, _ = fit("sft", SMALL, demonstrations=str(file))
    assert (after.steps, vars_of(after)["batch_size"]) == (12, 4)
    assert num_conversations(None) is None


def vars_of(config: TrainConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in type(config).__dataclass_fields__}


def test_what_is_given_stays_and_ten_times_too_much_is_said() -> None:
    _, after, said = fit("grpo", SMALL, learning_rate=2e-4, imitation_lr=1e-5, demonstrations=8)
    assert (after.learning_rate, after.imitation_lr, after.imitation_epochs) == (2e-4, 1e-5, 3)
    assert said.notes[1:] == [
        "warning: learning_rate 0.0002 is 10 times what a pretrained model of 135M parameters bears here (2e-05); it "
        "may forget what it knows: leave it out, or give less (docs/pretrained.md)"
    ]
    assert fit("grpo", SMALL, learning_rate=1.9e-4)[2].notes[1:] == []
    both = fit("grpo", LARGE, learning_rate=3e-4, lora_rank=8, imitation_lr=1e-3)
    assert both[1].lora_rank == 8 and both[1].lora_alpha == 16.0
    assert [note.split(" is ")[0] for note in both[2].notes[1:]] == [
        "warning: learning_rate 0.0003", "warning: imitation_lr 0.001",
    ]  # fmt: skip


def test_old_names_count_as_given() -> None:
    found = find_method("quickstart")
    assert "num_epochs" not in free_options(found.config_class, {"updates": 2})


def test_a_method_that_names_its_pretrained_model_keeps_its_settings() -> None:
    before, after, said = fit("quickstart-real", SMALL)
    assert after == before and said.notes == []


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnConfig(grpo.Config):
    """Configuration of a method of somebody's own."""

    learning_rate: float = 7e-6


def test_defaults_of_a_method_of_ones_own_stay() -> None:
    found = FoundMethod(spec="own.py", label="own", config_class=OwnConfig, function=grpo.method, summary="")
    config = OwnConfig(model=QWEN)
    assert fit_config(found, config, {"model": QWEN}, SMALL).config.learning_rate == 7e-6
    assert fit_config(found, config, {"model": QWEN}, SMALL).config.imitation_lr == 1e-4


def test_a_method_that_refuses_lora_layers_trains_all_weights() -> None:
    _, after, said = fit("human_preferences", LARGE)
    assert (after.lora_rank, after.learning_rate, vars_of(after)["reward_lr"]) == (0, 1e-6, 1e-5)
    assert after.policies == {}
    assert "RL of all weights is run at 1e-6" in said.notes[0]
    loud = fit("human_preferences", LARGE, reward_lr=1e-3)[2]
    assert loud.notes[1].startswith("warning: reward_lr 0.001 is 100 times")


def test_critics_have_rates_of_their_own() -> None:
    _, after, said = fit("archer", LARGE)
    rates = {name: settings.learning_rate for name, settings in after.policies.items()}
    assert rates == {"critic_1": 1e-6, "critic_2": 1e-6}, "which the factor critic_lr_scale makes 1e-5"
    assert "policies critic_1 at 1e-06 and critic_2 at 1e-06" in said.notes[0]
    _, small, _ = fit("archer", LARGE, critic_size="micro")
    assert {settings.learning_rate for settings in small.policies.values()} == {1e-4}, "as from nothing"
    _, scored, _ = fit("instruct_gpt", LARGE, reward_model="judged")
    assert scored.policies["critic"].learning_rate == 1e-5
    given = {"critic_1": {"learning_rate": 3e-3}}
    _, after, _ = fit("archer", LARGE, policies=given)
    assert after.policies["critic_1"].learning_rate == 3e-3
    assert after.policies["critic_2"].learning_rate == 1e-6


def test_no_warm_start_has_no_rate() -> None:
    before, after, said = fit("grpo", SMALL, demonstrations=0)
    assert after.imitation_lr is before.imitation_lr is None
    assert "imitation" not in said.notes[0]


def test_models_made_here_change_nothing(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    folder = save(build_tiny(tokenizer, size="micro"), tokenizer, tmp_path / "ours")
    assert not find_origin(str(folder)).is_pretrained
    found = find_method("grpo")
    for model in ("tiny", "mini?tokens=words", "auto", str(folder)):
        config = grpo.Config(model=model)
        assert fit_to_model(found, config, {"model": model}) == Fitted(config=config)


def test_the_mark_outlives_a_copy(pretrained: Path) -> None:
    found = find_origin(str(pretrained))
    assert found.is_pretrained and 10_000 < found.num_parameters < 100_000
    config = grpo.Config(model=str(pretrained))
    assert fit_to_model(find_method("grpo"), config, {}).config == replace(
        config, learning_rate=2e-5, imitation_lr=1e-4
    )


def test_an_embedder_has_no_model_to_fit() -> None:
    found = find_method("dare")
    config = found.config_class(model="nowhere/at-all")
    assert fit_to_model(found, config, {}) == Fitted(config=config)


def test_a_run_says_it_at_its_start_and_keeps_it(
    pretrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields: dict[str, Any] = {
        "environment": "guess", "model": str(pretrained), "demonstrations": 0, "steps": 1, "tasks": 1, "group_size": 2,
        "eval_start": False, "eval_episodes": 1, "max_turn_tokens": 4,
    }  # fmt: skip
    folder = quintain.train("grpo", run="fits", root=tmp_path, learning_rate=2e-4, **fields)
    said = capsys.readouterr().err
    assert (
        "quintain: warning: learning_rate 0.0002 is 10 times what a pretrained model of 0M parameters" in said
    )
    with Run.open(folder, writable=False) as run:
        assert run.config["learning_rate"] == 2e-4
    folder = quintain.train("grpo", run="own", root=tmp_path, **fields)
    assert "elsewhere is pretrained (0M parameters), and what was not given fits it: learning_rate 2e-05" in (
        capsys.readouterr().err
    )
    with Run.open(folder, writable=False) as run:
        assert run.config["learning_rate"] == 2e-5


OUTSIDE = "mine.py:run_agent?grade=grade"


@pytest.mark.parametrize(
    ("agent", "given", "changed"),
    [
        (
            f"{OUTSIDE}&expert=e",
            {},
            {
                "model": "mini?tokens=words",
                "demonstrations": 256,
                "learning_rate": 7e-4,
                "num_epochs": 4,
                "entropy_coef": 0.01,
                "lr_schedule": "linear",
            },
        ),
        (OUTSIDE, {}, {"model": "mini?tokens=words", "learning_rate": 7e-4}),
        (
            f"{OUTSIDE}&expert=e",
            {
                "model": "micro",
                "demonstrations": 5,
                "learning_rate": 1e-3,
                "num_epochs": 1,
                "entropy_coef": 0.0,
            },
            {},
        ),
        (OUTSIDE, {"entropy_coef": 0.03}, {"entropy_coef": 0.03, "lr_schedule": "method"}),
        (OUTSIDE, {"environment": "tasks:@t.csv"}, {"demonstrations": 0}),
        ("auto", {}, {}),
    ],
)
def test_an_agent_outside_has_defaults_that_learn(
    agent: str, given: dict[str, Any], changed: dict[str, Any]
) -> None:
    found = find_method("grpo")
    values = {"environment": "guess", "agent": agent, **given}
    config = build(found.config_class, values, "test")
    after = fit_to_model(found, config, values)
    assert {key: getattr(after.config, key) for key in changed} == changed
    assert bool(after.notes) == bool(changed) and (after.config == config) == (not changed)
    assert not after.notes or "lives outside" in after.notes[0]
    assert all("docs/your-agent.md" in note for note in after.notes)


def test_a_new_model_that_nobody_shows_anything_is_warned_of() -> None:
    found = find_method("grpo")
    for agent, given, is_warned in (
        (OUTSIDE, {"environment": "tasks:@t.csv"}, True),
        (f"{OUTSIDE}&expert=e", {"environment": "tasks:@t.csv"}, False),
        (OUTSIDE, {"environment": "tasks:@t.csv", "demonstrations": 0}, False),
        (OUTSIDE, {"environment": "guess"}, False),
    ):
        values = {**given, "agent": agent}
        notes = fit_to_model(found, build(found.config_class, values, "test"), values).notes
        assert any("expert=FUNCTION" in note for note in notes) == is_warned, (agent, given)


def test_a_batch_of_an_agent_outside_is_gone_through_again_where_ratios_are_clipped() -> None:
    """A method without a bound on its ratios takes one update, as it is published, and no bonus that it has not."""
    values = {"environment": "guess", "agent": OUTSIDE}
    for name, epochs, bonus in (("grpo", 4, 0.01), ("reinforce", 1, None)):
        found = find_method(name)
        config: Any = fit_to_model(found, build(found.config_class, values, "test"), values).config
        assert (config.num_epochs, getattr(config, "entropy_coef", None)) == (epochs, bonus)


def test_a_warm_start_learns_at_the_rate_of_what_it_trains() -> None:
    assert fit("grpo", SMALL, demonstrations=8)[1].imitation_lr == 1e-4
    assert fit("grpo", SMALL, demonstrations=8, lora_rank=8)[1].imitation_lr == 5e-4
