"""What a step learned from, for the journal: the episodes it used, and what each of their tokens was trained with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from quintain.data.pipeline import name_of
from quintain.errors import DataError
from quintain.store.run import Run
from quintain.types import Batch, Comparison, Credit, Example, Outputs, Pair, Sample, Signals, Trajectory, Use

Place = tuple[int, int]
"""(identity of the trajectory, number of its turn)"""


LARGEST = 6e4
"""What is only looked at is kept in half precision, between minus this and this."""


class SignalRecorder:
    """Collects weights and what the learner says of the trained tokens in the first epoch of a step."""

    def __init__(self) -> None:
        self._weights: dict[Place, NDArray[np.float32]] = {}
        self._logprobs: dict[Place, NDArray[np.float32]] = {}
        self._seen: dict[str, dict[Place, NDArray[np.float32]]] = {}
        """the same of what is only looked at, by the names of `Signals`"""

    def observe(
        self, trajectories: Sequence[Trajectory], samples: Sequence[Sample], batch: Batch, outputs: Outputs
    ) -> None:
        """Take in what the learner says of `batch`, whose streams are `samples` of `trajectories`, in order."""
        weights = batch.loss_weight.detach().cpu().split(batch.lengths)
        logprobs = outputs.logprobs.detach().float().cpu().split(batch.lengths)
        values = outputs.values if batch.extra.values is None else batch.extra.values
        told = {
            "entropies": outputs.entropy,
            "values": values,
            "reference_logprobs": batch.extra.reference_logprobs,
        }
        seen = {
            name: array.detach().float().cpu().split(batch.lengths)
            for name, array in told.items()
            if array is not None
        }
        for number, (sample, weight, logprob) in enumerate(zip(samples, weights, logprobs, strict=True)):
            if sample.choice >= 0 and not sample.loss_weight.any():
                continue  # a candidate that was not chosen
            for turn in np.unique(sample.turn_id[sample.turn_id >= 0]).tolist():
                is_own = sample.turn_id == turn
                place = id(trajectories[sample.trajectory]), turn
                self._weights[place] = weight.numpy()[is_own]
                self._logprobs[place] = logprob.numpy()[is_own]
                for name, arrays in seen.items():
                    self._seen.setdefault(name, {})[place] = arrays[number].numpy()[is_own]

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

    def imitated(self, examples: Sequence[Example], find: Callable[[str], Trajectory | None]) -> list[Use]:
        """Return what a step that imitated `examples` used: every episode that they came from, once, in order.

        `find` returns the episode that the journal has under a name; what it does not have is left out. An episode has
        weights and log-probs where nothing else than its own turns was made of it.
        """
        made: dict[str, list[Example]] = {}
        for example in examples:
            for name in example.sources:
                made.setdefault(name, []).append(example)
        found: dict[str, Use] = {}
        for name, own in made.items():
            episode = find(name)
            if episode is None or episode.id in found:
                continue
            is_whole = all(len(example.sources) == 1 for example in own)
            parts = list({id(example.trajectory): example.trajectory for example in own}.values())
            signals = self._record_episode(episode, parts) if is_whole else None
            found[episode.id] = Use(episode=episode.id, signals=signals)
        return list(found.values())

    def record_preferences(
        self, pairs: Sequence[Pair], find: Callable[[str], Trajectory | None]
    ) -> list[Use]:
        """Return what a step that compared `pairs` used: of each both sides, the chosen one first.

        A pair of which the journal does not have both sides is left out.
        """
        found: list[Use] = []
        for pair in pairs:
            sides = [(side, find(name_of(side))) for side in (pair.chosen, pair.rejected)]
            known = [(side, episode) for side, episode in sides if episode is not None]
            if len(known) == len(sides):
                (_, one), (_, other) = known
                found += [
                    Use(
                        episode=episode.id,
                        signals=self._record_episode(episode, [side]),
                        rejected=other.id if episode is one else "",
                    )
                    for side, episode in known
                ]
        return found

    def _record_episode(self, episode: Trajectory, parts: Sequence[Trajectory]) -> Signals | None:
        """Return the weights and log-probs of `episode`, whose turns `parts` are made of."""
        places = _find_turns(episode, parts)
        if places is None:
            return None

        def get(of: Mapping[Place, NDArray[np.float32]]) -> NDArray[np.float32]:
            return _lay(episode, places, lambda number, turn: of.get((id(parts[number]), turn)))

        seen = {name: _halve(get(of)) for name, of in self._seen.items()}
        return Signals(weights=get(self._weights), logprobs=get(self._logprobs), **seen)

    def _signals(self, episode: Trajectory, credit: Credit, numbers: Sequence[int]) -> Signals | None:
        """Return the signals of `episode`, which the trajectories `numbers` of `credit` are the seats of."""
        places = _find_turns(episode, [credit.trajectories[number] for number in numbers])
        if places is None:
            return None

        def lay(of: Callable[[int, int], NDArray[np.float32] | None]) -> NDArray[np.float32]:
            return _lay(episode, places, lambda part, turn: of(numbers[part], turn))

        returns, trajectories = credit.returns, credit.trajectories
        return Signals(
            weights=lay(lambda number, turn: self._weights.get((id(trajectories[number]), turn))),
            advantages=lay(lambda number, turn: credit.advantages[number][turn]),
            returns=None if returns is None else lay(lambda number, turn: returns[number][turn]),
            logprobs=lay(lambda number, turn: self._logprobs.get((id(trajectories[number]), turn))),
            **{
                name: _halve(lay(lambda number, turn, of=of: of.get((id(trajectories[number]), turn))))
                for name, of in self._seen.items()
            },
        )


class Imitated:
    """What the steps of a run learned from data: ``watch`` before each training of a step, ``uses`` after the last.

    Args:
        run: whose journal has the episodes that examples are made of.
        is_on: whether that is recorded.
    """

    def __init__(self, run: Run, *, is_on: bool) -> None:
        self._run, self._is_on = run, is_on
        self._trainings: list[
            tuple[SignalRecorder, Sequence[Example | Pair | Comparison], dict[int, None]]
        ] = []
        self._known: dict[str, Trajectory | None] = {}
        self._has_shown = False
        """whether the demonstrations were read"""

    def watch(
        self, data: Sequence[Example | Pair | Comparison]
    ) -> Callable[[Sequence[Sample], Batch, Outputs], None] | None:
        """Begin a training on `data`, and return what takes in what the learner says; None where that is off."""
        if not self._is_on:
            return None
        recorder, seen = SignalRecorder(), dict[int, None]()
        examples = [each for each in data if isinstance(each, Example)]
        # An episode may be a side of several pairs, each with weights of its own.
        pairs = [
            replace(each, chosen=replace(each.chosen), rejected=replace(each.rejected))
            for each in data
            if isinstance(each, Pair)
        ]
        comparisons = [each for each in data if isinstance(each, Comparison)]
        self._trainings.append((recorder, pairs or comparisons or examples, seen))
        trajectories = [side for pair in pairs for side in (pair.chosen, pair.rejected)]
        trajectories = trajectories or [example.trajectory for example in examples]

        def observe(samples: Sequence[Sample], batch: Batch, outputs: Outputs) -> None:
            seen.update(dict.fromkeys(s.trajectory if s.pair < 0 else s.pair for s in samples))
            if not comparisons:  # what is trained of these is a score, and no token that was sampled
                recorder.observe(trajectories, samples, batch, outputs)

        return observe

    def uses(self) -> list[Use] | None:
        """Return what the step used of the journal's episodes, and begin the next; None where it is not recorded.

        An episode of several trainings has the weights of the last of them.
        """
        trainings, self._trainings = self._trainings, []
        if not trainings:
            return None
        found: dict[str, Use] = {}
        compared: list[Use] = []
        for recorder, data, seen in trainings:
            chosen = [data[place] for place in seen]
            compared += recorder.record_preferences(
                [each for each in chosen if isinstance(each, Pair)], self.find
            )
            compared += [
                use for each in chosen if isinstance(each, Comparison) for use in self._record_ranking(each)
            ]
            own = recorder.imitated([each for each in chosen if isinstance(each, Example)], self.find)
            found |= {use.episode: use for use in own}
        return [*found.values(), *compared]

    def _record_ranking(self, comparison: Comparison) -> list[Use]:
        """Return the use of every answer of `comparison`, best first, which is said to be chosen over the worst."""
        order = sorted(range(len(comparison.ranks)), key=lambda place: -comparison.ranks[place])
        found = [self.find(name_of(comparison.answers[place])) for place in order]
        known = [episode.id for episode in found if episode is not None]
        if len(known) < len(order):
            return []
        return [Use(episode=known[0], rejected=known[-1]), *(Use(episode=name) for name in known[1:])]

    def find(self, name: str) -> Trajectory | None:
        """Return the episode that examples call `name`; None where the journal has none.

        An example that was made before its episode got the journal's name is called by group and index; those are
        demonstrations, or preferences that were given.
        """
        if "#" in name and not self._has_shown:
            self._has_shown = True
            for trajectory in self._run.trajectories(step=0, phase="demonstrations"):
                self._known[f"{trajectory.group}#{trajectory.index}"] = trajectory
        if name not in self._known:
            try:
                self._known[name] = None if "#" in name else self._run.episode(name)
            except DataError:
                self._known[name] = None
        return self._known[name]


def _halve(array: NDArray[np.float32]) -> NDArray[np.float16]:
    """Return `array` in half precision, which is enough to look at."""
    return array.clip(-LARGEST, LARGEST).astype(np.float16)


def _find_turns(episode: Trajectory, parts: Sequence[Trajectory]) -> list[tuple[int, int] | None] | None:
    """Return for each turn of `episode` the part and its turn that it is; None where a part has other turns."""
    places: list[tuple[int, int] | None] = [None] * len(episode.turns)
    for number, part in enumerate(parts):
        free = iter(range(len(places)))
        for turn, own in enumerate(part.turns):
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
    return places


def _lay(
    episode: Trajectory,
    places: Sequence[tuple[int, int] | None],
    of: Callable[[int, int], NDArray[np.float32] | None],
) -> NDArray[np.float32]:
    """Return what `of` says of each part and turn along the sampled tokens of `episode`, 0 where it says nothing."""
    rows = [np.zeros(0, np.float32)]
    for place, turn in zip(places, episode.turns, strict=True):
        found = None if place is None else of(*place)
        rows.append(np.zeros(len(turn.completion.token_ids), np.float32) if found is None else found)
    return np.concatenate(rows)
