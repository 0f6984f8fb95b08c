from collections.abc import Sequence

import numpy as np

from quintain.types import Sample


def streamed(ids: Sequence[int], *, first: int, logprobs: Sequence[float]) -> Sample:
    """Return the stream `ids` whose tokens from number `first` on are one sampled turn."""
    is_new = np.arange(len(ids)) >= first
    return Sample(
        token_ids=np.array(ids),
        turn_id=np.where(is_new, 0, -1),
        turn_end=np.arange(len(ids)) == len(ids) - 1,
        loss_weight=(is_new / is_new.sum()).astype(np.float32),
        advantages=is_new.astype(np.float32),
        returns=np.zeros(len(ids), np.float32),
        logprobs=np.array([0.0] * first + list(logprobs), np.float32),
        trajectory=0,
    )
