"""Token streams by which a critic says what a state is worth (V) and what a turn in it is worth (Q).

A critic reads a stream up to a place and says a number there. Before the first token of a turn that is V(s), after its
last one Q(s, a): the same head, whose meaning is where it stands. One stream holds both of all its turns, so one pass
over an episode reads, or trains, all of them. Where nothing is shown between two turns, the state of the second is what
the first led to, and there is one number for both, Q.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from quintain.data.samples import imitation_samples, samples_from
from quintain.errors import InvariantError
from quintain.types import Credit, Sample, Trajectory

Numbers = Sequence[Sequence[float]]
"""[trajectory][turn]"""


def turn_value_samples(
    trajectories: Sequence[Trajectory],
    *,
    before: Numbers | None = None,
    after: Numbers | None = None,
    max_length: int | None = None,
) -> list[Sample]:
    """Return the streams of `trajectories` with targets `before` (y_V) and `after` (y_Q) each turn, as `returns`.

    A place is marked by `turn_id`; `turn_end` says that it is after the turn. A target that is NaN, or is not given,
    has loss weight 0; of neither, all places have weight 1, to be read. A stream of `max_length` tokens has no room for
    one more: Q of its last turn stands before its last token.

    Raises:
        InvariantError: in an episode nothing was sampled.
    """
    if not trajectories:
        return []
    samples = imitation_samples(trajectories)
    if len({sample.trajectory for sample in samples}) < len(trajectories):
        raise InvariantError("values of turns: got an episode in which nothing was sampled; record a Failure")
    return [_mark_turns(sample, before, after, max_length) for sample in samples]


def _mark_turns(
    sample: Sample, before: Numbers | None, after: Numbers | None, max_length: int | None
) -> Sample:
    has_room = max_length is None or len(sample.token_ids) < max_length
    ids = np.append(sample.token_ids, np.int64(0)) if has_room else sample.token_ids
    ends = np.flatnonzero(sample.turn_end)
    turns = sample.turn_id[ends]
    starts = np.array([np.argmax(sample.turn_id == turn) for turn in turns], np.int64)
    ends = np.minimum(ends + 1, len(ids) - 1)
    weight, returns = np.zeros(len(ids), np.float32), np.zeros(len(ids), np.float32)
    turn_id, turn_end = np.full(len(ids), -1, np.int64), np.zeros(len(ids), np.bool_)
    is_read = before is after is None
    for places, targets in ((starts, before), (ends, after)):
        own = np.zeros(len(turns)) if targets is None else np.array(targets[sample.trajectory])[turns]
        is_known = np.isfinite(own) & (is_read or targets is not None)
        weight[places], returns[places] = is_known, np.where(is_known, own, 0.0)
        turn_id[places], turn_end[places] = turns, places is ends
    return Sample(
        token_ids=ids,
        loss_weight=weight,
        logprobs=np.zeros(len(ids), np.float32),
        advantages=np.zeros(len(ids), np.float32),
        returns=returns,
        turn_id=turn_id,
        turn_end=turn_end,
        trajectory=sample.trajectory,
    )


def last_turn_samples(trajectories: Sequence[Trajectory], advantages: Sequence[float]) -> list[Sample]:
    """Return streams that train the last turn of each of `trajectories`, by its advantage, and nothing before it.

    What was said before is context: it need not be of the weights that are trained.
    """
    credit = Credit(
        trajectories=tuple(trajectories),
        advantages=tuple(
            tuple(
                np.full(len(turn.completion.token_ids), own * (number == len(t.turns)), np.float32)
                for number, turn in enumerate(t.turns, 1)
            )
            for t, own in zip(trajectories, advantages, strict=True)
        ),
    )
    found: list[Sample] = []
    for sample in samples_from(credit):
        is_last = sample.turn_id == len(trajectories[sample.trajectory].turns) - 1
        if is_last.any():
            weight = np.where(is_last, sample.loss_weight, np.float32(0))
            found.append(replace(sample, loss_weight=weight, turn_id=np.where(is_last, sample.turn_id, -1)))
    return found
