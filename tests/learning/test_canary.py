"""An engine that serves new weights passes; one that is stale in any way does not, however small the step."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.learning.test_learner import nll, qwen, streams
from transformers import PreTrainedModel

from quintain.data.pack import pack
from quintain.engines.local import Local
from quintain.engines.protocol import Capability, Reply, Request, Sampling
from quintain.errors import EngineFault, InvariantError
from quintain.learning.canary import Canary
from quintain.learning.learner import Learner, Optimization

RATES = [1e-2, 1e-4, 1e-5]
"""Learning rates, down to steps that no bound on the difference alone would notice."""


def trained(rate: float = 1e-3, **fields: float) -> Learner:
    return Learner(qwen(), replace(Optimization(learning_rate=rate), **fields))


def step(learner: Learner) -> None:
    learner.step([pack(streams(1))], nll)


def copied(model: PreTrainedModel) -> PreTrainedModel:
    """An engine's own weights, as one in another process has them."""
    own = qwen()
    own.load_state_dict(model.state_dict())
    return own


class Elsewhere(Local):
    """An engine with weights of its own that nobody here can look into."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(copied(model))

    @property
    def capabilities(self) -> frozenset[Capability]:
        return super().capabilities - {"fingerprint"}


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_an_engine_that_takes_over_the_weights_is_near(temperature: float) -> None:
    learner = trained(temperature=temperature)
    engine, canary = Local(learner.model), Canary(learner)
    for _ in range(3):
        engine.load_weights(learner.version, None)
        assert canary.check(engine) < 1e-4
        step(learner)


def test_an_engine_elsewhere_that_copies_the_weights_is_near() -> None:
    learner = trained()
    engine, canary = Elsewhere(learner.model), Canary(learner)
    for _ in range(3):
        engine.model.load_state_dict(learner.model.state_dict())
        engine.load_weights(learner.version, None)
        assert canary.check(engine) < 1e-4
        step(learner)


def test_it_leaves_nothing_in_the_engine() -> None:
    learner = trained()
    engine, canary = Local(learner.model), Canary(learner)
    for _ in range(2):
        canary.check(engine)
        assert engine.advance() == []


@pytest.mark.parametrize("rate", RATES)
def test_stale_weights_are_found_at_the_first_sync(rate: float) -> None:
    learner = trained(rate)
    engine, canary = Elsewhere(learner.model), Canary(learner)
    canary.check(engine)
    step(learner)
    engine.load_weights(learner.version, None)
    with pytest.raises(
        InvariantError, match=r"serves other weights, or samples|to version 1: got .* did not take them over"
    ):
        canary.check(engine)


def test_a_version_that_stays_behind_is_found() -> None:
    learner = trained()
    engine, canary = Local(learner.model), Canary(learner)
    step(learner)
    with pytest.raises(InvariantError, match=r"got version 0 of the learner's 1"):
        canary.check(engine)


@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "model.layers.0.mlp.down_proj.weight"])
def test_one_tensor_that_was_damaged_on_the_way_is_found(name: str) -> None:
    learner = trained()
    own = copied(learner.model)
    with torch.no_grad():
        own.get_parameter(name).mul_(-1)
    with pytest.raises(InvariantError, match="serves other weights"):
        Canary(learner).check(Local(own))


def test_another_temperature_is_found() -> None:
    learner = trained(temperature=0.3)
    canary = Canary(learner)
    learner.forward.temperature = 1.3
    engine = Local(learner.model)
    ask: Callable[..., object] = engine.submit

    def colder(request: object) -> None:
        ask(replace(request, sampling=replace(request.sampling, temperature=0.3)))  # type: ignore[attr-defined,type-var] # pyright: ignore

    engine.submit = colder
    with torch.no_grad():
        learner.model.get_parameter("model.embed_tokens.weight").mul_(30)
    engine.load_weights(0, None)
    with pytest.raises(InvariantError, match="samples at another temperature"):
        canary.check(engine)


class Silent(Local):
    """Never answers."""

    def advance(self) -> list[Reply]:
        return []


def test_an_engine_that_does_not_answer_is_named() -> None:
    learner = trained()
    with pytest.raises(
        EngineFault, match=r"got no reply in 0.1 s; the engine hangs, or needs longer: raise its rep"
    ):
        Canary(learner, patience=0.1).check(Silent(learner.model))


class Slow(Local):
    """Answers after more rounds than anybody counts."""

    def __init__(self, model: PreTrainedModel, rounds: int) -> None:
        super().__init__(model)
        self.rounds = rounds

    def advance(self) -> list[Reply]:
        self.rounds -= 1
        return [] if self.rounds > 0 else super().advance()


def test_an_engine_may_take_as_long_as_for_any_reply() -> None:
    learner = trained()
    assert Canary(learner).check(Slow(learner.model, 20_000)) < 1e-4


def test_it_is_answered_beside_turns_that_fill_the_engine() -> None:
    learner = trained()
    engine = Local(learner.model, max_batch=1)
    long = Sampling(max_tokens=60)
    for name in ("first", "second"):
        engine.submit(Request(session=name, prompt_ids=(1, 2), seed=0, sampling=long))
    engine.advance()
    assert Canary(learner).check(engine) < 1e-4
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_finished) == (1, 1, 1), (
        "only the canary was served"
    )
