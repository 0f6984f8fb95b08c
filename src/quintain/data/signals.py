"""What a step trained each episode with, put back from token streams into the order in which the tokens were sampled.

The journal keeps it with the step (`Run.commit(..., uses=...)`), for a viewer of every token and for replay.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quintain.errors import InvariantError
from quintain.types import Sample, Signals, Trajectory


def signals_of(
    trajectories: Sequence[Trajectory],
    samples: Sequence[Sample],
    *,
    weights: Sequence[NDArray[np.float32]] | None = None,
    logprobs: Sequence[NDArray[np.float32]] | None = None,
    has_returns: bool = False,
) -> list[Signals]:
    """Return the signals of each of `trajectories`: arrays over its sampled tokens, turn by turn.

    `weights` (normalised over the step; else `Sample.loss_weight`) and the learner's `logprobs` have an array [L] for
    each of `samples`. A token that no sample holds was not trained: its numbers are 0. Raises `InvariantError` where
    arrays and samples do not fit.
    """
    ends = [np.cumsum([0, *(len(turn.completion.token_ids) for turn in each.turns)]) for each in trajectories]
    columns = {
        "weights": [sample.loss_weight for sample in samples] if weights is None else weights,
        "advantages": [sample.advantages for sample in samples],
        "returns": [sample.returns for sample in samples] if has_returns else None,
        "logprobs": logprobs,
    }
    found = {
        name: [np.zeros(int(each[-1]), np.float32) for each in ends]
        for name, column in columns.items()
        if column is not None
    }
    for name, arrays in found.items():
        for sample, column in zip(samples, columns[name] or (), strict=True):
            if column.shape != sample.turn_id.shape:
                raise InvariantError(
                    f"{name} of a stream of {len(sample.turn_id)} tokens: got {len(column)}; give one for each token"
                )
            for turn in np.unique(sample.turn_id[sample.turn_id >= 0]):
                start, end = ends[sample.trajectory][turn : turn + 2]
                arrays[sample.trajectory][start:end] = column[sample.turn_id == turn]
    return [
        Signals(**{name: arrays[index] for name, arrays in found.items()})
        for index in range(len(trajectories))
    ]
