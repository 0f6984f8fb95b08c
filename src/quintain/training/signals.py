"""What a step learned from, for the journal: the episodes it used, and what each of their tokens was trained with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from quintain.types import Batch, Credit, Outputs, Sample, Signals, Trajectory, Use

Place = tuple[int, int]
"""(identity of the trajectory, number of its turn)"""


class SignalRecorder:
    """Collects weights and learner's log-probs of the trained tokens in the first epoch of a step."""

    def __init__(self) -> None:
        self._weights: dict[Place, NDArray[np.float32]] = {}
        self._logprobs: dict[Place, NDArray[np.float32]] = {}

    def observe(
        self, trajectories: Sequence[Trajectory], samples: Sequence[Sample], batch: Batch, outputs: Outputs
    ) -> None:
        """Take in what the learner says of `batch`, whose streams are `samples` of `trajectories`, in order."""
        weights = batch.loss_weight.detach().cpu().split(batch.lengths)
        logprobs = outputs.logprobs.detach().float().cpu().split(batch.lengths)
        for sample, weight, logprob in zip(samples, weights, logprobs, strict=True):
            for turn in np.unique(sample.turn_id[sample.turn_id >= 0]).tolist():
                is_own = sample.turn_id == turn
                place = id(trajectories[sample.trajectory]), turn
                self._weights[place] = weight.numpy()[is_own]
                self._logprobs[place] = logprob.numpy()[is_own]

    def uses(self, credit: Credit, recorded: Sequence[Trajectory]) -> list[Use]:
        """Return what the step used of the `recorded` episodes, in the order of `credit`.

        Seats of an episode are one use of it. An episode whose tokens were edited before they were trained on has no
        signals, since they would belong to tokens that it does not have.
        """
        known = {t.id: t for t in recorded if t.id}
        parts: dict[str, list[int]] = {}
        for number, trajectory in enumerate(credit.trajectories):
            if trajectory.id in known:
                parts.setdefault(trajectory.id, []).append(number)
        return [
            Use(episode=name, signals=self._signals(known[name], credit, numbers))
            for name, numbers in parts.items()
        ]

    def _signals(self, episode: Trajectory, credit: Credit, numbers: Sequence[int]) -> Signals | None:
        """Return the signals of `episode`, which the trajectories `numbers` of `credit` are the seats of."""
        lengths = [len(turn.completion.token_ids) for turn in episode.turns]
        places: list[tuple[int, int] | None] = [None] * len(lengths)
        for number in numbers:
            free = iter(range(len(lengths)))
            for turn, own in enumerate(credit.trajectories[number].turns):
                ids = own.completion.token_ids
                found = next(
                    (
                        at
                        for at in free
                        if episode.turns[at].completion.token_ids == ids
                        and episode.turns[at].speaker == own.speaker
                    ),
                    None,
                )
                if found is None:
                    return None
                places[found] = (number, turn)

        def lay(of: Callable[[int, int], NDArray[np.float32] | None]) -> NDArray[np.float32]:
            rows = [np.zeros(0, np.float32)]
            for place, length in zip(places, lengths, strict=True):
                found = None if place is None else of(*place)
                rows.append(np.zeros(length, np.float32) if found is None else found)
            return np.concatenate(rows)

        returns, trajectories = credit.returns, credit.trajectories
        return Signals(
            weights=lay(lambda number, turn: self._weights.get((id(trajectories[number]), turn))),
            advantages=lay(lambda number, turn: credit.advantages[number][turn]),
            returns=None if returns is None else lay(lambda number, turn: returns[number][turn]),
            logprobs=lay(lambda number, turn: self._logprobs.get((id(trajectories[number]), turn))),
        )
