"""What a run needs of the memory of its machine, phase by phase, before anything is loaded; refused if it cannot fit.

The formulas are those of `quintain.models.memory`. What is certain, weights, optimizer and one short pass, must fit;
what depends on how long streams become is said, and where it may not fit, what to give so that it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import torch

from quintain.engines.settings import read_engine
from quintain.errors import MemoryShortage
from quintain.learning.policies import acts, is_frozen, learns, plan_policies
from quintain.learning.saved import is_of_run, tokenizer_folder
from quintain.learning.sections import MICRO_TOKENS, PolicySettings
from quintain.learning.train_config import MAIN, PolicySpec, TrainConfig
from quintain.models.device import find_device, free_memory
from quintain.models.load import outline
from quintain.models.memory import (
    OPTIMIZER,
    PROGRAM,
    Phase,
    Shape,
    Use,
    amount,
    count_trainable,
    engine_copy_bytes,
    most_tokens,
    phases,
    sampling,
    shape_of,
    update,
    weights,
)
from quintain.warm_start.start import new_model

if TYPE_CHECKING:
    from quintain.learning.policies import Policy

USUAL_STREAM = 2048
"""Tokens that streams are taken to have where nobody says how long they may become."""
SHORT = 1024
"""Tokens of the pass that must fit at least."""
SPARE = 0.95
"""Share of what is free that may be planned with."""
AMPLE = 0.5
"""Share of it that leaves so much room that a line is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A policy, and what is done with its model."""

    name: str
    shape: Shape
    use: Use
    device: torch.device

    @property
    def size(self) -> str:
        """Its number of parameters: ``135M``, ``8.2B``."""
        num = self.shape.parameters
        return f"{num / 1e9:.1f}B" if num >= 1e9 else f"{num / 1e6:.0f}M"

    @property
    def summary(self) -> str:
        """Its size, what is trained of it, its precision, and what samples from it."""
        rank = self.use.lora_rank
        trained = f"LoRA of rank {rank}" if rank else "all weights"
        what = [self.size, trained if self.use.is_trained else "frozen", self.use.precision]
        return ", ".join([*what, *([f"engine {self.use.engine}"] if self.use.engine else [])])

    @property
    def resident(self) -> int:
        """Bytes that it has on its device whoever is at work."""
        state = OPTIMIZER.get(self.use.optimizer, 0) * count_trainable(self.shape, self.use)
        return weights(self.shape, self.use) + engine_copy_bytes(self.shape, self.use) + state

    @property
    def least(self) -> int:
        """Bytes that an update takes of it with a short pass, or the weights where it learns nothing."""
        if not self.use.is_trained:
            return self.resident
        return update(self.shape, replace(self.use, tokens=min(self.use.tokens, SHORT))).total


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run needs on each device: ``plan_memory(config, specs).lines()``."""

    parts: tuple[Part, ...]

    def phases(self, device: torch.device) -> list[Phase]:
        """Return the phases on `device`, each at its worst: one policy at work, and the others there."""
        own = [part for part in self.parts if part.device == device]
        found: dict[str, Phase] = {}
        for part in own:
            others = sum(each.resident for each in own if each is not part)
            for phase in phases(part.shape, part.use):
                more = {"other policies": others} if others and phase.name != "load" else {}
                program = {"the program": PROGRAM} if device.type == "cpu" else {}
                whole = replace(phase, parts={**phase.parts, **more, **program})
                if phase.name not in found or whole.total > found[phase.name].total:
                    found[phase.name] = whole
        return list(found.values())

    @property
    def has_room(self) -> bool:
        """Whether all of it is on the processor, and takes no more than half of what is free there."""
        return all(
            device.type == "cpu"
            and max(phase.total for phase in self.phases(device)) <= free_memory(device)[0] * AMPLE
            for device in {part.device for part in self.parts}
        )

    def summary(self) -> str:
        """Return in a line what computes on the processor, and what the largest phase takes of its memory.

        ``on cpu: policy (135M, all weights, fp32, engine local); memory: up to 4.7 GiB of 20.9 GiB free``
        """
        (device,) = {part.device for part in self.parts}
        most = max(phase.total for phase in self.phases(device))
        there = ", ".join(f"{part.name} ({part.summary})" for part in self.parts)
        return f"on {device}: {there}; memory: up to {amount(most)} of {amount(free_memory(device)[0])} free"

    def lines(self) -> Iterator[str]:
        """Yield a line for each phase on each device."""
        for device in dict.fromkeys(part.device for part in self.parts):
            free, total = free_memory(device)
            room = f"{amount(free)} of {amount(total)} are free"
            for number, phase in enumerate(self.phases(device)):
                yield f"memory of {device}, {phase}{f'; {room}' if not number else ''}"

    def check(self) -> None:
        """Refuse a run that cannot fit.

        Raises:
            MemoryShortage: naming the phase, what it needs, and what to change.
        """
        for part in self.parts:
            free, total = free_memory(part.device)
            needed = self._needed(part)
            if needed.total <= free * SPARE:
                continue
            used = total - free
            held = f" ({amount(used)} are held by others)" if used > total // 8 else ""
            raise MemoryShortage(
                f"memory of {part.device} for the policy {part.name}: got {amount(free)} free of "
                f"{amount(total)}{held}, and it needs at least {needed}; {self._advice(part, free)}"
            )

    def notes(self) -> Iterator[str]:
        """Yield what may not fit, with what to give so that it does."""
        for part in self.parts:
            free = int(free_memory(part.device)[0] * SPARE)
            others = sum(
                each.resident for each in self.parts if each.device == part.device and each is not part
            )
            others += PROGRAM if part.device.type == "cpu" else 0
            if part.use.is_trained and update(part.shape, part.use).total + others > free:
                fits = most_tokens(part.shape, part.use, free - others) // 256 * 256
                yield (
                    f"an update of {part.name} with {part.use.tokens:,} tokens at once may not fit: give "
                    f"--tokens-per-microbatch {max(fits, 256)}, or --gradient-checkpointing true"
                )
            if part.use.engine and sampling(part.shape, part.use).total + others > free:
                yield (
                    f"{part.use.streams} streams of {part.use.length:,} tokens of {part.name} may not fit: lower "
                    "--concurrency, or --max-context"
                )

    def _needed(self, part: Part) -> Phase:
        """Return the phase of `part` that needs most, with a short pass and few tokens, beside the other policies."""
        tokens = min(part.use.tokens, SHORT)
        small = replace(
            part.use, tokens=tokens, streams=min(part.use.streams, 1), length=min(part.use.length, SHORT)
        )
        others = sum(each.resident for each in self.parts if each.device == part.device and each is not part)
        found = max(phases(part.shape, small), key=lambda phase: phase.total)
        return replace(found, parts={**found.parts, **({"other policies": others} if others else {})})

    def _advice(self, part: Part, free: int) -> str:
        """Return what to give so that `part` fits into `free` bytes, or that nothing here does."""
        use = part.use
        given: list[str] = []
        plan = self
        for words, changes in advices(part):
            use = replace(use, **changes)
            given.append(words)
            changed = replace(part, use=use)
            others = [changed if each is part else each for each in self.parts]
            plan = Plan(parts=tuple(others))
            if plan._needed(changed).total <= free * SPARE:
                return f"give {' '.join(given)}"
        return "take a smaller model, a device with more memory, or --learner-ranks N over several"


def advices(part: Part) -> list[tuple[str, dict[str, object]]]:
    """Return what saves memory of `part` and is not done yet, flag and change, what costs least first."""
    use = part.use
    found: list[tuple[str, dict[str, object]]] = []
    if not use.checkpoints and use.is_trained:
        found.append(("--gradient-checkpointing true", {"checkpoints": True}))
    if use.is_trained and not use.lora_rank:
        found.append(("--lora-rank 16", {"lora_rank": 16, "is_frozen": True}))
    if use.precision == "fp32" and use.device != "cpu":
        found.append(("--precision bf16", {"precision": "bf16"}))
    return found


def plan_memory(config: TrainConfig, specs: Mapping[str, PolicySpec]) -> Plan | None:
    """Return what a run of `config`, whose method asks for the policies `specs`, needs; None where it is not known.

    Nothing is known of a model that is yet to be made, which is small, and of the machines of a cluster.
    """
    if new_model(config.model) is not None or config.cluster:
        return None
    parts: list[Part] = []
    for name, (spec, settings) in plan_policies(config, specs).items():
        if spec is not None and spec.size and not settings.model:
            continue
        model = settings.model or ("" if spec is None else spec.model) or config.model
        device = find_device(settings.device)
        parts.append(
            Part(
                name=name,
                shape=shape_named(model),
                use=use_of(config, name, spec, settings, device, shape_named(model)),
                device=device,
            )
        )
    return Plan(parts=tuple(parts))


def use_of(
    config: TrainConfig,
    name: str,
    spec: PolicySpec | None,
    settings: PolicySettings,
    device: torch.device,
    shape: Shape,
) -> Use:
    """Return what `config` does with the model of the policy `name`."""
    is_trained = learns(spec, settings)
    is_copy = name != MAIN and not is_trained and not settings.model and (spec is None or not spec.model)
    has_lora = config.main_policy().lora_rank > 0
    streams = max(config.episodes_of_step or 0, config.eval_episodes)
    return Use(
        device=device.type,
        precision=settings.precision,
        is_frozen=is_frozen(spec, settings, is_trained),
        is_trained=is_trained,
        lora_rank=settings.lora_rank if is_trained else 0,
        optimizer=config.optimizer,
        checkpoints=config.gradient_checkpointing,
        tokens=settings.tokens_per_microbatch or MICRO_TOKENS,
        ranks=max(config.learner_ranks, 1),
        engine=read_engine(settings.engine)["kind"] if acts(config, name, spec) else "",
        streams=min(config.concurrency, streams),
        length=min(settings.max_context or USUAL_STREAM, shape.longest),
        shares=bool(settings.shares) or (is_copy and has_lora and (spec is None or spec.copies == MAIN)),
    )


@cache
def shape_named(model: str) -> Shape:
    """Return the shape of the model that `model` names, a run or a step of one included; no weight is read."""
    return shape_of(outline(str(tokenizer_folder(model)) if is_of_run(model) else model))


def learner_bytes(policy: Policy) -> int:
    """Return the bytes that the learner of `policy` takes of its device in an update, with a short pass."""
    settings = policy.settings
    use = Use(
        device=policy.model.device.type,
        precision=settings.precision,
        is_frozen=policy.model.dtype != torch.float32,
        is_trained=policy.learner is not None,
        lora_rank=settings.lora_rank if policy.adapter is not None else 0,
        optimizer="adamw" if policy.learner is None else policy.learner.optimization.optimizer,
        checkpoints=policy.learner is not None and policy.learner.optimization.gradient_checkpointing,
        tokens=SHORT,
    )
    return update(shape_of(policy.model), use).total


def describe_where(plan: Plan, engine: str, max_staleness: int) -> Iterator[str]:
    """Yield where each policy computes, in what precision, what is trained of it, and who waits for whom."""
    for part in plan.parts:
        use, shape = part.use, part.shape
        what = "frozen"
        if use.is_trained and use.lora_rank:
            what = f"LoRA of rank {use.lora_rank} ({count_trainable(shape, use) / 1e6:.1f}M) on weights that stay"
        elif use.is_trained:
            what = "all weights are trained"
        kept = "16 bits" if use.width == 2 else "fp32"
        shared = " (those of another policy)" if use.shares else ""
        sampled = f", sampled by the engine {use.engine}" if use.engine else ""
        yield (
            f"{part.name}: {part.size} parameters on {part.device}, {what}; kept in {kept}{shared}, computed in "
            f"{use.precision}{sampled}"
        )
    apart = engine.partition("?")[0] not in ("local", "process")
    yield (
        f"sampling and learning take turns{', on cards of their own' if apart and _has_cards(plan.parts) else ''}"
        if not max_staleness
        else f"episodes of up to {max_staleness} steps are begun ahead; they wait while the weights are updated"
    )


def _has_cards(parts: Sequence[Part]) -> bool:
    return any(part.device.type == "cuda" for part in parts) and torch.cuda.device_count() > 1
