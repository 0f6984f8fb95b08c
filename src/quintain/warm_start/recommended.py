"""Settings that follow from the model where nobody gives them: rates, LoRA, passes and schedules, by kind of training.

A model that was made here from nothing, a million parameters of noise, takes rates at which one that has read the web
forgets how to speak. What a pretrained model bears depends on how many parameters it has, on whether all of them are
trained or LoRA layers, and on what it learns from. The numbers of large models are those that public tools begin with;
those of small ones were measured here, with SmolLM2-135M (docs/real-model.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Literal

from quintain.learning.sections import Schedule
from quintain.models.precision import Precision

Kind = Literal["imitation", "preference", "reinforcement", "critic"]
"""What weights learn from: what to say; which of two sides is preferred; rewards; what a value or a score should be."""
LARGE = 500_000_000
"""Parameters from which a pretrained model counts as large."""
LORA_RANK, LORA_ALPHA = 16, 32.0
"""Of a large one that learns by LoRA; the scale is alpha / rank."""
PASSES = 3
"""Times that a pretrained model goes through what it imitates."""
RISING = 0.1
"""Share of the steps on a data set over which the learning rate rises."""
LARGE_BATCH, SMALL_BATCH, UPDATES = 32, 4, 32
"""Most and fewest conversations of a step of imitation, and the steps that few of them are dealt out to."""
TURN_TOKENS = 512
"""Of a turn of a large model: it reasons before it acts."""
TOO_HIGH = 10.0
"""Times what such models bear, from which a given rate is warned of."""
PAGE = "docs/pretrained.md"
SIZES = {False: f"fewer than {LARGE // 1_000_000}M", True: f"{LARGE // 1_000_000}M or more"}
"""How a table calls small and large models."""

SMALL_SOURCE = "measured with SmolLM2-135M"
RATES: dict[tuple[Kind, bool, bool], tuple[float, str]] = {
    ("imitation", False, False): (1e-4, f"{SMALL_SOURCE}: 48 demonstrations, twice, took it from 0 to 94 %"),
    ("imitation", False, True): (
        5e-4, f"{SMALL_SOURCE}: LoRA layers begin at nothing, and 7e-4 took it from 0 to 77 %",
    ),
    ("preference", False, False): (2e-5, f"{SMALL_SOURCE}: a tenth of what LoRA layers bore, 2e-4"),
    ("preference", False, True): (2e-4, f"{SMALL_SOURCE}: three rounds of ETO took it from 22 to 95 %"),
    ("reinforcement", False, False): (2e-5, f"{SMALL_SOURCE}: GRPO held what it had, and 3e-5 took it from 11 to 92 %"),
    ("reinforcement", False, True): (2e-4, f"{SMALL_SOURCE}: Search-R1 learned at 3e-4"),
    ("critic", False, False): (1e-4, f"{SMALL_SOURCE}: a reward model learned at 1e-4, and nothing at 3e-5"),
    ("critic", False, True): (5e-4, "LoRA layers begin at nothing and bear some times what all weights do"),
    ("imitation", True, False): (1e-5, "SFT of all weights is run at 1e-5 (LLaMA-Factory) to 2e-5 (TRL, Zephyr)"),
    ("imitation", True, True): (1e-4, "SFT of LoRA layers is run at 1e-4 (LLaMA-Factory) to 2e-4 (Unsloth)"),
    ("preference", True, False): (5e-7, "DPO of all weights is run at 5e-7 (Zephyr) to 1e-6 (TRL)"),
    ("preference", True, True): (1e-5, "DPO of LoRA layers is run at 5e-6 (LLaMA-Factory, Zephyr) to 1e-4 (SWIFT)"),
    ("reinforcement", True, False): (1e-6, "RL of all weights is run at 1e-6 (TRL, verl)"),
    ("reinforcement", True, True): (1e-5, "RL of LoRA layers is run at ten times the 1e-6 of all weights"),
    ("critic", True, False): (1e-5, "critics of all weights are trained at 1e-5 (verl)"),
    ("critic", True, True): (1e-4, "LoRA layers bear ten times the 1e-5 of all weights"),
}  # fmt: skip
"""(kind, whether the model is large, whether LoRA layers are trained) → learning rate, and why"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """What follows from a model: ``Recommended(reason="made from nothing …")``; None: as the method has it."""

    reason: str
    """a sentence"""
    learning_rate: float | None = None
    lora_rank: int = 0
    """where nobody says whether LoRA layers are trained; 0: all weights"""
    lora_alpha: float | None = None
    passes: int | None = None
    """times that what is imitated is gone through"""
    schedule: Schedule | None = None
    """of the rate, where all of the data is there before the first step"""
    rising: float = 0.0
    """share of the steps over which it rises first"""
    turn_tokens: int | None = None
    checkpoints: bool | None = None
    """whether activations are computed anew, in the place of being kept"""
    precision: Precision | None = None


def recommend(
    *, is_pretrained: bool, num_parameters: int, has_lora: bool | None, kind: Kind, has_gpu: bool = False
) -> Recommended:
    """Return the settings that follow from a model and what it learns from, on a GPU where it `has_gpu`.

    `has_lora` says whether LoRA layers are trained; None: nobody says, and it follows from the size.
    """
    if not is_pretrained:
        return Recommended(
            reason="a model made here from nothing takes the settings that the method was measured with"
        )
    is_large = num_parameters >= LARGE
    by_lora = is_large if has_lora is None else has_lora
    rate, reason = RATES[kind, is_large, by_lora]
    return Recommended(
        reason=reason,
        learning_rate=rate,
        lora_rank=LORA_RANK if by_lora and has_lora is None else 0,
        lora_alpha=LORA_ALPHA if by_lora and has_lora is None else None,
        passes=PASSES,
        schedule=None if kind == "reinforcement" else "linear",
        rising=0.0 if kind == "reinforcement" else RISING,
        turn_tokens=TURN_TOKENS if is_large else None,
        checkpoints=True if is_large else None,
        precision="bf16" if is_large and has_gpu else None,
    )


def steps_through(count: int, passes: int) -> tuple[int, int]:
    """Return the steps that go `passes` times through `count` conversations, and how many of them each takes.

    >>> steps_through(400, 3), steps_through(16, 3)
    ((38, 32), (12, 4))
    """
    batch = min(max(count * passes // UPDATES, SMALL_BATCH), LARGE_BATCH, count)
    return ceil(count * passes / batch), batch


def is_too_high(rate: float, recommended: float) -> bool:
    """Whether a given `rate` is ten times what is `recommended`, or more."""
    return rate >= TOO_HIGH * recommended * (1 - 1e-9)


def rate_lines() -> Iterator[str]:
    """Yield the table of rates of the documentation: a row for each of `RATES`."""
    yield "| learns from | parameters | trained | learning rate | why |"
    yield "|---|---|---|---|---|"
    for (kind, is_large, has_lora), (rate, reason) in RATES.items():
        trained = "LoRA layers" if has_lora else "all weights"
        yield f"| {kind} | {SIZES[is_large]} | {trained} | {rate:g} | {reason} |"


def setting_lines() -> Iterator[str]:
    """Yield the table of the other settings, with what they are by method where the model is made from nothing."""
    advice = recommend(
        is_pretrained=True, num_parameters=LARGE, has_lora=None, kind="imitation", has_gpu=True
    )
    steps, batch = steps_through(400, PASSES)
    yield "| option | of which models | value | why |"
    yield "|---|---|---|---|"
    rows = (
        ("lora_rank, lora_alpha", True, f"{advice.lora_rank}, {advice.lora_alpha:g}", "AdamW of all weights takes 16 "
         "bytes for each of them; the rank is TRL's"),
        ("imitation_epochs", None, f"{advice.passes}", "LLaMA-Factory has 3 and Zephyr 1; more is learned by heart"),
        ("steps, batch_size of imitation", None, f"as go {PASSES} times through what is imitated: {steps} of {batch} "
         f"for 400 conversations, never more than {LARGE_BATCH} in a step", "the same"),
        ("lr_schedule, lr_warmup of data that is there", None, f"{advice.schedule}, after a rise over {RISING:.0%} of "
         "the steps", "Zephyr, LLaMA-Factory; where a policy samples anew, the method's own schedule begins with a "
         "rise"),
        ("max_turn_tokens", True, f"{advice.turn_tokens}", "such models reason before they act, and 128 cut them off"),
        ("precision on a GPU", True, f"{advice.precision}", "what such models are released in, and half the memory "
         "of a base that is not trained"),
        ("gradient_checkpointing", True, f"{advice.checkpoints}", "activations of a batch do not fit otherwise (TRL)"),
    )  # fmt: skip
    for option, is_large, value, why in rows:
        yield f"| {option} | {'all' if is_large is None else SIZES[is_large]} | {value} | {why} |"
