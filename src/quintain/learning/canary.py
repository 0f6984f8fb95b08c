"""Proof after a sync that the engine serves the new weights: a canary prompt, scored by engine and learner.

The engine is made to say a few fixed tokens, so that the log-probs of one version can be compared with those of the
next. An engine that is nearer to the old weights than to the new ones is stale, however small the step was; one that
is far from both, or names another version, is wrong. An engine with weights of its own, if it can name them by their
bytes, is compared by the fingerprint of all of them.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from quintain.data.pack import pack
from quintain.engines.protocol import Engine, Grammar, Request, Sampling
from quintain.errors import EngineFault, InvariantError
from quintain.learning import gap
from quintain.learning.learner import Learner
from quintain.models.adapters import plain
from quintain.models.fingerprint import fingerprint
from quintain.types import Completion, Sample, derive_seed

NUM_PROMPT, NUM_SAID = 12, 2
"""Tokens of the prompt, and tokens that the engine says."""
STALE = 0.5
"""Distance to the old weights as a part of that to the new ones, from which an engine counts as stale."""
NOISE = 1e-5
"""Change of the log-probs in nats below which old and new weights cannot be told apart."""
PATIENCE = 600.0
"""Seconds after which an engine does not answer, unless its settings say otherwise."""


class Canary:
    """Compares the engine with `learner`; remembers what the last version said.

    An engine has as long to answer as for any reply, `patience` seconds, and answers beside the turns that it works on.
    """

    def __init__(self, learner: Learner, *, patience: float = PATIENCE) -> None:
        self.learner, self.patience = learner, patience
        size = int(learner.model.config.vocab_size)
        ids = tuple(derive_seed("canary", place) % size for place in range(NUM_PROMPT + NUM_SAID))
        self.prompt, self.said = ids[:NUM_PROMPT], ids[NUM_PROMPT:]
        self.constraint = Grammar.of_tokens(self.said)
        self._batch = pack([_sample(ids)])
        self._before: NDArray[np.float32] | None = None

    def check(self, engine: Engine) -> float:
        """Return the mean difference of `engine` and learner in nats per token.

        Raises:
            EngineFault: the engine does not answer.
            InvariantError: it names another policy version, or serves other weights than the learner's.
        """
        completion = self._ask(engine)
        version = self.learner.version
        if completion.policy_version != version or engine.policy_version != version:
            raise InvariantError(
                f"weights of the engine after a sync: got version {completion.policy_version} of the learner's "
                f"{version}; sync must take over the weights and their version"
            )
        if "fingerprint" in engine.capabilities and not engine.shares(self.learner.model):
            _compare(engine.fingerprint(), fingerprint(plain(self.learner.model)))
        served = np.array(completion.logprobs, dtype=np.float32)
        now = self.learner.infer(self._batch).logprobs[NUM_PROMPT:].cpu().float().numpy()
        before, self._before = self._before, now
        distance = _distance(served, now)
        gap.check(distance, float(np.abs(served - now).max()))
        if before is None or _distance(now, before) <= NOISE:
            return distance
        if _distance(served, before) < STALE * distance:
            raise InvariantError(
                f"weights of the engine after the sync to version {version}: got log-probs {distance:.2g} nats from "
                f"the new weights and {_distance(served, before):.2g} from the old; the engine did not take them over"
            )
        return distance

    def _ask(self, engine: Engine) -> Completion:
        """Return what `engine` says to the canary."""
        name = f"canary/{self.learner.version}"
        heat = self.learner.optimization.temperature
        sampling = Sampling(temperature=heat, max_tokens=NUM_SAID, constraint=self.constraint)
        request = Request(session=name, prompt_ids=self.prompt, seed=0, sampling=sampling, is_urgent=True)
        engine.submit(request)
        deadline = time.monotonic() + self.patience
        while True:
            for reply in engine.advance():
                if reply.session == name:
                    engine.release(name)
                    return _check_reply(reply.result, self.said)
            if time.monotonic() > deadline:
                raise EngineFault(
                    f"a canary prompt: got no reply in {self.patience:g} s; the engine hangs, or needs longer: raise "
                    "its reply_timeout"
                )


def _check_reply(result: object, expected: tuple[int, ...]) -> Completion:
    """Return `result` if it is what the canary had to say."""
    if not isinstance(result, Completion) or result.token_ids != expected:
        raise EngineFault(f"a canary prompt: got {result}; the engine must say the tokens {expected}")
    return result


def _compare(served: str, trained: str) -> None:
    """Raise where two fingerprints differ."""
    if served != trained:
        raise InvariantError(
            f"fingerprint of the weights after a sync: got {served[:12]} in the engine for {trained[:12]} of the "
            "learner; the engine serves other weights than are trained"
        )


def _distance(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    """Return the mean absolute difference."""
    return float(np.abs(left - right).mean())


def _sample(ids: tuple[int, ...]) -> Sample:
    """Return the stream of the canary, with its last tokens as those that were sampled."""
    is_said = np.arange(len(ids)) >= NUM_PROMPT
    nothing = np.zeros(len(ids), dtype=np.float32)
    return Sample(
        token_ids=np.array(ids, dtype=np.int64),
        loss_weight=is_said.astype(np.float32),
        logprobs=nothing,
        advantages=nothing,
        returns=nothing,
        turn_id=np.where(is_said, 0, -1).astype(np.int64),
        turn_end=np.arange(len(ids)) == len(ids) - 1,
        trajectory=0,
    )
