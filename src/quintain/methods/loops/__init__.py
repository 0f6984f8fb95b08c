"""The loops that methods are values in, one for each kind of `Method`; `train_by` picks the one that fits."""

from quintain.errors import UsageError
from quintain.learning.job import Job
from quintain.methods.method import Contrastive, Method, Offline, OnPolicy, Replay, Rounds
from quintain.store.run import Run


def train_by(method: Method, job: Job, run: Run) -> None:
    """Train by `method` until ``job.steps``, continuing where `run` was left."""
    match method:
        case OnPolicy():
            from quintain.methods.loops.on_policy import train_on_policy

            train_on_policy(method, job, run)
        case Offline():
            from quintain.methods.loops.offline import train_offline

            train_offline(method, job, run)
        case Rounds():
            from quintain.methods.loops.rounds import train_in_rounds

            train_in_rounds(method, job, run)
        case Replay():
            from quintain.methods.loops.replay import train_by_replay

            train_by_replay(method, job, run)
        case Contrastive():
            from quintain.methods.loops.contrastive import train_contrastively

            train_contrastively(method, job, run)
        case _:
            raise UsageError(
                f"method: got a {type(method).__name__}; return OnPolicy, Offline, Rounds, Replay or Contrastive from "
                "method(config)"
            )
