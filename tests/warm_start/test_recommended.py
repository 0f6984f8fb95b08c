"""Settings that follow from the model: each row of the table, models made here from nothing, and warnings."""

import pytest

from quintain.warm_start.recommended import (
    LARGE,
    RATES,
    Kind,
    Recommended,
    is_too_high,
    rate_lines,
    recommend,
    setting_lines,
    steps_through,
)

SMALL_MODEL, LARGE_MODEL = 134_515_008, 1_720_574_976
ROWS: list[tuple[Kind, int, bool, float]] = [
    ("imitation", SMALL_MODEL, False, 1e-4),
    ("imitation", SMALL_MODEL, True, 5e-4),
    ("preference", SMALL_MODEL, False, 2e-5),
    ("preference", SMALL_MODEL, True, 2e-4),
    ("reinforcement", SMALL_MODEL, False, 2e-5),
    ("reinforcement", SMALL_MODEL, True, 2e-4),
    ("critic", SMALL_MODEL, False, 1e-4),
    ("critic", SMALL_MODEL, True, 5e-4),
    ("imitation", LARGE_MODEL, False, 1e-5),
    ("imitation", LARGE_MODEL, True, 1e-4),
    ("preference", LARGE_MODEL, False, 5e-7),
    ("preference", LARGE_MODEL, True, 1e-5),
    ("reinforcement", LARGE_MODEL, False, 1e-6),
    ("reinforcement", LARGE_MODEL, True, 1e-5),
    ("critic", LARGE_MODEL, False, 1e-5),
    ("critic", LARGE_MODEL, True, 1e-4),
]


@pytest.mark.parametrize(("kind", "num_parameters", "has_lora", "rate"), ROWS)
def test_rates(kind: Kind, num_parameters: int, has_lora: bool, rate: float) -> None:
    found = recommend(is_pretrained=True, num_parameters=num_parameters, has_lora=has_lora, kind=kind)
    assert found.learning_rate == rate
    assert found.reason and found.lora_rank == 0 and found.lora_alpha is None, (
        "it was said which weights train"
    )
    assert found.passes == 3
    assert (found.schedule, found.rising) == ((None, 0.0) if kind == "reinforcement" else ("linear", 0.1))
    is_large = num_parameters == LARGE_MODEL
    assert (found.turn_tokens, found.checkpoints) == ((512, True) if is_large else (None, None))


def test_every_row_is_tested_and_none_has_a_rate_above_that_of_lora_layers() -> None:
    assert len(ROWS) == len(RATES)
    for (kind, is_large, has_lora), (rate, _) in RATES.items():
        assert has_lora or 2 * rate <= RATES[kind, is_large, True][0]
        assert RATES[kind, True, has_lora][0] <= RATES[kind, False, has_lora][0]


def test_large_models_train_lora_layers_where_nobody_says() -> None:
    def found(num_parameters: int) -> Recommended:
        return recommend(
            is_pretrained=True, num_parameters=num_parameters, has_lora=None, kind="reinforcement"
        )

    assert (found(LARGE).lora_rank, found(LARGE).lora_alpha, found(LARGE).learning_rate) == (16, 32.0, 1e-5)
    below = found(LARGE - 1)
    assert (below.lora_rank, below.lora_alpha, below.learning_rate) == (0, None, 2e-5)


@pytest.mark.parametrize("kind", ["imitation", "preference", "reinforcement", "critic"])
def test_nothing_follows_from_a_model_made_from_nothing(kind: Kind) -> None:
    found = recommend(is_pretrained=False, num_parameters=LARGE_MODEL, has_lora=None, kind=kind)
    assert found == Recommended(reason=found.reason)


@pytest.mark.parametrize(
    ("count", "steps", "batch"), [(1, 3, 1), (3, 3, 3), (16, 12, 4), (100, 34, 9), (400, 38, 32), (10_000, 938, 32)]
)  # fmt: skip
def test_steps_go_three_times_through_the_conversations(count: int, steps: int, batch: int) -> None:
    assert steps_through(count, 3) == (steps, batch)
    assert 0 <= steps * batch - 3 * count < batch


def test_a_rate_is_too_high_from_ten_times_on() -> None:
    assert is_too_high(2e-4, 2e-5) and is_too_high(1e-3, 1e-4)
    assert not is_too_high(1.9e-4, 2e-5)


def test_tables_of_the_documentation() -> None:
    assert len(list(rate_lines())) == 2 + len(RATES)
    assert (
        "| reinforcement | 500M or more | all weights | 1e-06 | RL of all weights is run at 1e-6 (TRL, verl) |"
        in list(rate_lines())
    )
    assert any("lora_rank, lora_alpha | 500M or more | 16, 32" in line for line in setting_lines())
