"""A learner in two ranks against one in this process; `tests/cluster` has other numbers of ranks, and their deaths."""

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.learning.sharding.cases import (
    CASES,
    PLAIN,
    alone,
    check_case,
    distance,
    few,
    make_model,
    save_start,
    sharded,
)

from quintain.errors import ConfigError, EngineFault, ModelError, StoreError
from quintain.learning.learner import Learner, Optimization
from quintain.learning.policies import Policies, SharedModel, build_policies
from quintain.learning.sharding.learner import ShardedForward, ShardedLearner
from quintain.learning.sharding.ranks import Ranks
from quintain.learning.sharding.shard import Lora
from quintain.learning.sharding.wire import weights_in
from quintain.learning.train_config import MAIN, PolicySpec, TrainConfig
from quintain.losses.compose import combine
from quintain.losses.imitation import imitation
from quintain.losses.value import value
from quintain.methods.method import Needs
from quintain.models.adapters import add_lora
from quintain.runs.context import make_engine

ADAM = Optimization(learning_rate=1e-2)


@pytest.fixture(scope="module", name="ranks")
def _ranks() -> Generator[Ranks]:  # pyright: ignore[reportUnusedFunction]
    made = Ranks(2)
    yield made
    made.close()


@pytest.fixture(scope="module", name="start")
def _start(tmp_path_factory: pytest.TempPathFactory) -> Path:  # pyright: ignore[reportUnusedFunction]
    return save_start(tmp_path_factory.mktemp("start"))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_a_step_in_ranks_is_that_of_one_process(ranks: Ranks, start: Path, name: str) -> None:
    check_case(ranks, start, name)


@pytest.mark.parametrize("name", ["ppo", pytest.param("dpo", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_ranks_that_share_the_tokens_of_a_batch_have_its_gradient(
    ranks: Ranks, start: Path, name: str
) -> None:
    check_case(ranks, start, name, context_ranks=2)


@pytest.mark.slow
def test_each_rank_holds_its_part_only(ranks: Ranks, start: Path) -> None:
    whole = sum(parameter.numel() for parameter in make_model().parameters())
    spec = sharded(ranks, start, "parts")
    assert spec.named_parameters.keys() == {f"model.{name}" for name, _ in make_model().named_parameters()}
    assert sum(spec.num_numbers) == whole
    assert max(spec.num_numbers) < 0.6 * whole


@pytest.mark.slow
def test_what_it_says_without_a_gradient_is_of_the_present_weights(ranks: Ranks, start: Path) -> None:
    many, one = sharded(ranks, start, "said", has_head=True), alone(has_head=True)
    batches = few()
    for _ in range(2):  # a pass without gradient must not keep the weights together
        told = [*many.forward.infer_each(batches)]
        for got, batch in zip(told, batches, strict=True):
            want = one.infer(batch)
            assert want.values is not None and got.values is not None
            for part, expected in (
                (got.logprobs, want.logprobs),
                (got.entropy, want.entropy),
                (got.values, want.values),
            ):
                torch.testing.assert_close(part, expected, atol=2e-6, rtol=2e-6)
        for learner in (many, one):
            learner.step(batches, imitation(), rate_scale=0.01)
    assert many.version == one.version == 2


@pytest.mark.slow
def test_a_checkpoint_of_ranks_is_read_by_one_process_and_by_ranks(
    ranks: Ranks, start: Path, tmp_path: Path
) -> None:
    many, batches = sharded(ranks, start, "saved", optimization=ADAM), few()
    many.step(batches, imitation())
    many.save(tmp_path)
    one, again = alone(optimization=ADAM), sharded(ranks, start, "again", optimization=ADAM)
    for other in (one, again):
        other.load(tmp_path)
        assert other.version == 1
        assert distance(other.parameters, many.parameters) == 0
    reports = [learner.step(batches, imitation()) for learner in (many, again, one)]
    assert distance(again.parameters, many.parameters) == 0
    assert distance(one.parameters, many.parameters) < 1e-5
    assert reports[2].loss == pytest.approx(reports[0].loss, rel=1e-6)
    many.restart()
    many.step(batches, imitation())
    again.step(batches, imitation())
    assert distance(again.parameters, many.parameters) > 1e-3, "an optimizer that forgot moves otherwise"


@pytest.mark.slow
def test_lora_layers_are_trained_and_the_rest_stays(ranks: Ranks, start: Path) -> None:
    learners: list[Learner] = []
    for count in (0, ranks.count):
        shared = SharedModel(make_model())
        torch.manual_seed(3)
        add_lora(shared.model, 2, 4.0, (), name="policy")
        trained = shared.trained("policy")
        if count:
            learners.append(
                ShardedLearner(
                    shared.model, PLAIN, ranks=ranks, name="lora", folder=str(start), trained=trained,
                    lora=Lora(name="policy", rank=2, alpha=4.0),
                )
            )  # fmt: skip
        else:
            learners.append(Learner(shared.model, PLAIN, trained=trained))
    one, many = learners
    assert len(many.named_parameters) == len(one.parameters) == 2 * 2 * 7
    for learner in learners:
        learner.step(few(), imitation(), rate_scale=0.01)
    assert distance(many.parameters, one.parameters) < 1e-6


BESIDE = {
    "reference": PolicySpec(),
    "reward_model": PolicySpec(head="value", head_seed=3),
    "critic": PolicySpec(head="value", is_trained=True),
    "target": PolicySpec(copies="critic", head="value", follows="critic", polyak=0.5),
}


@pytest.mark.parametrize("rank", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_policies_that_are_only_asked_say_in_ranks_what_they_say_here(
    ranks: Ranks, start: Path, tmp_path: Path, rank: int
) -> None:
    config = TrainConfig(lora_rank=rank, learning_rate=1e-2, optimizer="sgd")
    specs = {**BESIDE, **Needs(reference=True, renews_reference=1).policies} if rank else BESIDE

    def made(ranks_of: Callable[[str], Ranks | None]) -> Policies:
        torch.manual_seed(3)
        return build_policies(
            config, start, specs, has_critic=False, make_engine=make_engine, ranks_of=ranks_of
        )

    here, there = made(lambda _: None), made(lambda name: None if name == MAIN else ranks)
    batches = few()

    def check_equal(*names: str) -> None:
        for name in names:
            one, many = here[name], there[name]
            told = [[outputs for _, outputs in each.infer_each(batches)] for each in (one, many)]
            for want, got in zip(*told, strict=True):
                torch.testing.assert_close(got.logprobs, want.logprobs, atol=1e-6, rtol=1e-6)
                assert (want.values is None) == (got.values is None)
                if want.values is not None and got.values is not None:
                    torch.testing.assert_close(got.values, want.values, atol=1e-6, rtol=1e-6)

    assert isinstance(there["reference"].forward, ShardedForward)
    check_equal(*specs)
    before = there["target"].infer(batches[0])
    for policies in (here, there):
        for learner in policies.learners.values():
            learner.step(
                batches,
                combine((imitation(), 1.0), (value(), 0.5)) if learner.forward.value_head else imitation(),
            )
        policies.follow("critic")
        policies["reference"].follow(policies.main, polyak=1.0)
    check_equal(*specs)
    assert not torch.equal(there["target"].infer(batches[0]).logprobs, before.logprobs)
    there.save(tmp_path)
    again = made(lambda name: None if name == MAIN else ranks)
    again["target"].load(tmp_path / "target")
    assert torch.equal(again["target"].infer(batches[0]).logprobs, there["target"].infer(batches[0]).logprobs)


@pytest.mark.slow
def test_what_is_computed_anew_has_the_same_gradient(ranks: Ranks, start: Path) -> None:
    sparing = replace(PLAIN, gradient_checkpointing=True)
    many, one = sharded(ranks, start, "sparing", optimization=sparing), alone()
    for learner in (many, one):
        learner.step(few(), imitation())
    assert distance(many.parameters, one.parameters) < 2e-6


@pytest.mark.slow
def test_what_is_not_finite_changes_nothing(ranks: Ranks, start: Path) -> None:
    many = sharded(ranks, start, "broken")
    before = [parameter.detach().clone() for parameter in many.parameters]
    (batch, *_) = few()
    report = many.step([replace(batch, loss_weight=batch.loss_weight * float("nan"))], imitation())
    assert report.is_skipped
    assert distance(many.parameters, before) == 0
    assert not many.step([batch], imitation(), rate_scale=0.01).is_skipped


@pytest.mark.slow
def test_what_cannot_be_is_refused(ranks: Ranks, start: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="adafactor, which needs whole rows"):
        sharded(ranks, start, "whole", optimization=replace(PLAIN, optimizer="adafactor"))
    many = sharded(ranks, start, "refused")
    many.parameters[0].requires_grad_(False)
    with pytest.raises(ConfigError, match="lets a part of the model rest"):
        many.step(few(), imitation())
    many.parameters[0].requires_grad_(True)
    alone().save(tmp_path)
    with pytest.raises(StoreError, match="without ranks; resume it with learner_ranks=0"):
        many.load(tmp_path)


@pytest.mark.parametrize("written", [None, b"half of it"])
def test_weights_that_do_not_arrive_are_one_line(tmp_path: Path, written: bytes | None) -> None:
    file = tmp_path / "weights.safetensors"
    if written is not None:
        file.write_bytes(written)
    with pytest.raises(
        EngineFault, match=rf"weights between the learner and its ranks: got .* from {file}; see that"
    ):
        dict(weights_in(file))


@pytest.mark.slow
def test_a_model_that_ranks_cannot_load_ends_them(tmp_path: Path) -> None:
    ranks = Ranks(2)
    with pytest.raises(ModelError, match="asked to build: a rank of 2 said: model"):
        sharded(ranks, tmp_path / "nothing", "policy")
    with pytest.raises(EngineFault, match="they were ended"):
        ranks.ask("clip", "policy")
