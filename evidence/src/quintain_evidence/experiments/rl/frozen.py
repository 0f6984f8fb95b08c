"""A start that rests: its episodes in batches, and the lab that takes gradients of it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from quintain.credit_lab.gradient import GradientLab
from quintain.learning.train_config import TrainConfig
from quintain.models.load import load
from quintain.text.chat import Chat
from quintain.types import Group, derive_seed
from quintain_evidence.labs.probe import Probe, opened
from quintain_evidence.labs.starts import cached_start

MOST_SEEDS = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A start and what it plays: ``frozen.batches(48, tasks=4, size=8)``."""

    lab: GradientLab
    probe: Probe
    chat: Chat
    success: float
    """on training tasks, when imitation ended"""

    def batches(self, count: int, *, tasks: int, size: int, first: int = 0) -> list[list[Group]]:
        """Return `count` batches of `size` episodes of each of `tasks` tasks, none of which two batches share."""
        drawn = self.probe.tasks(count * tasks, split="eval", first=first)
        groups = self.probe.play(drawn, size=size)
        return [groups[k * tasks : (k + 1) * tasks] for k in range(count)]


@contextmanager
def frozen(
    config: TrainConfig, seed: int, *, enough: float, most: float, root: Path | None = None
) -> Generator[Frozen]:
    """Open a start of `config` that `seed` names and that solves from `enough` to `most` of its training tasks."""
    start = cached_start(
        replace(config, seed=derive_seed("start", seed) % MOST_SEEDS), enough=enough, most=most, root=root
    )
    loaded = load(str(start.folder))
    with opened(start.folder, config.environment, seed=seed, agent=config.agent) as probe:
        yield Frozen(
            lab=GradientLab(loaded.model),
            probe=probe,
            chat=Chat(loaded.tokenizer),
            success=start.success,
        )
