"""Policies by name: references rest, critics are followed by their targets, adapters on one model stay apart."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.learning.test_learner import streams
from torch import Tensor

import quintain
from quintain.config import build
from quintain.data.pack import pack
from quintain.engines.build import hand_over
from quintain.engines.protocol import Engine, Request, Sampling
from quintain.environments.catalog import find
from quintain.errors import ConfigError, UsageError
from quintain.learning.canary import Canary
from quintain.learning.learner import Forward
from quintain.learning.policies import Policies, Policy, build_policies, load_main, plan_policies
from quintain.learning.sections import PolicySettings
from quintain.learning.train_config import MAIN, PolicySpec, TrainConfig
from quintain.learning.update import Update, learn_in_epochs
from quintain.losses.policy import clip_ratio
from quintain.losses.value import value
from quintain.methods.method import Needs
from quintain.models.adapters import has_adapters
from quintain.models.heads import ValueHead
from quintain.models.load import load
from quintain.models.save import save
from quintain.runs.context import make_engine
from quintain.types import Action, Batch, Completion, Sample, Score, Stop, Task, Trajectory, Turn
from quintain.warm_start.start import make_start

UPDATE = Update(loss=clip_ratio(), is_on_policy=False, lr_warmup=1)
VALUES = Update(loss=value(), is_on_policy=False, lr_warmup=1)
CRITIC = {
    "critic": PolicySpec(head="value", is_trained=True),
    "target": PolicySpec(copies="critic", head="value", follows="critic", polyak=0.25),
}
ADAPTED = TrainConfig(
    lora_rank=4,
    learning_rate=1e-2,
    policies={"opponent": PolicySettings(shares=MAIN, lora_rank=2)},
    seats={"white": "opponent"},
)
REFERENCE = {"reference": PolicySpec()}


def start_with(folder: Path, seed: int) -> Path:
    torch.set_num_threads(1)
    model, tokenizer = make_start("micro", find("guess?max_turns=1&high=3"), seed=seed)
    return save(model, tokenizer, folder)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start_with(tmp_path_factory.mktemp("policies") / "start", 0)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start_with(tmp_path_factory.mktemp("policies") / "other", 1)


Make = Callable[..., Policies]


@pytest.fixture
def make(start: Path) -> Make:
    def made(
        config: TrainConfig, specs: Mapping[str, PolicySpec] | None = None, *, has_critic: bool = False
    ) -> Policies:
        return build_policies(config, start, specs or {}, has_critic=has_critic, make_engine=make_engine)

    return made


def state(policy: Policy) -> dict[str, Tensor]:
    """Everything of the policy's model, whatever adapter is on, and of its head."""
    found = {name: tensor.detach().clone() for name, tensor in policy.model.state_dict().items()}
    head = policy.forward.value_head
    return found | ({} if head is None else {f"head.{k}": v.clone() for k, v in head.state_dict().items()})


def changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> set[str]:
    assert before.keys() == after.keys()
    return {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}


def samples() -> list[Sample]:
    return [replace(sample, token_ids=sample.token_ids % 30) for sample in streams(5)]


def said(policy: Policy) -> Tensor:
    batch: Batch = pack(samples())
    return policy.infer(batch).logprobs


def train(policies: Policies, name: str, update: Update = UPDATE, steps: int = 3) -> None:
    for step in range(1, steps + 1):
        assert (
            learn_in_epochs(policies, samples(), update, TrainConfig(), step=step, seed=step, policy=name)
            is not None
        )


def test_a_reference_is_a_copy_that_rests(make: Make, tmp_path: Path) -> None:
    policies = make(TrainConfig(learning_rate=1e-2), REFERENCE)
    reference, main = policies["reference"], policies.main
    assert torch.equal(said(reference), said(main)) and reference.model is not main.model
    before, likely = state(reference), said(reference)
    train(policies, MAIN)
    assert changed(before, state(reference)) == set() and torch.equal(said(reference), likely)
    assert not torch.equal(said(main), likely)
    assert not any(parameter.requires_grad for parameter in reference.model.parameters())
    assert list(policies.trained) == list(policies.acting) == [MAIN]
    assert (reference.version, reference.engine, main.version) == (0, None, 3)
    policies.save(tmp_path)
    assert not (tmp_path / "reference").exists(), "what does not change is not saved"
    with pytest.raises(UsageError, match="values of the policy reference: got one without a value head"):
        reference.token_values([])


RENEWED = Needs(reference=True, renews_reference=1).policies


@pytest.mark.parametrize("rank", [0, 2])
def test_a_reference_can_be_renewed_and_keeps_what_it_was(make: Make, tmp_path: Path, rank: int) -> None:
    config = TrainConfig(learning_rate=1e-2, lora_rank=rank)
    policies = make(config, RENEWED)
    reference, main = policies["reference"], policies.main
    first = said(reference)
    assert torch.equal(first, said(main))
    train(policies, MAIN)
    assert torch.equal(said(reference), first) and not torch.equal(said(main), first)
    reference.follow(main, polyak=1.0)
    renewed = said(reference)
    assert torch.allclose(renewed, said(main), atol=1e-6) and list(policies.trained) == [MAIN]
    train(policies, MAIN, steps=1)
    assert torch.equal(said(reference), renewed) and not torch.equal(said(main), renewed)
    policies.save(tmp_path)
    again = make(config, RENEWED)
    again.load(tmp_path)
    assert torch.equal(said(again["reference"]), renewed) and torch.equal(said(again.main), said(main))


def test_a_reference_of_another_tokenizer_is_refused(make: Make, tmp_path: Path) -> None:
    model, tokenizer = make_start("micro?tokens=words", find("guess?max_turns=1&high=3"), seed=0)
    folder = save(model, tokenizer, tmp_path / "other")
    config = TrainConfig(policies={"reference": PolicySettings(model=str(folder))})
    with pytest.raises(ConfigError, match=r"policies.reference.model: got .*whose tokenizer is not that of"):
        make(config, REFERENCE)


def test_the_value_after_a_cut_is_that_of_the_state_after_it(make: Make) -> None:
    policy = make(TrainConfig(), has_critic=True).main
    head = policy.forward.value_head
    assert isinstance(head, ValueHead)
    torch.nn.init.normal_(head.linear.weight)
    turn = Turn(
        observation=(),
        prompt_ids=(1, 2, 3),
        completion=Completion(token_ids=(4, 5), logprobs=(), stop="stop"),
        action=Action(),
    )
    cut = Trajectory(
        task=Task(id="t", environment="w", seed=0),
        turns=(turn, replace(turn, prompt_ids=(6,))),
        outcome=Score(value=0.0, is_success=False),
        stop=Stop.CUT,
        seed=0,
        group="t",
        index=0,
    )
    longer = replace(cut, turns=(*cut.turns, replace(turn, prompt_ids=())))
    (states,) = policy.token_values([longer]).values
    critic = policy.token_values([cut, replace(cut, stop=Stop.MAX_TURNS)])
    assert critic.final == pytest.approx([float(states[2][0]), float(states[1][-1])], abs=1e-5)
    assert [[len(array) for array in own] for own in critic.values] == [[2, 2], [2, 2]]
    assert critic.values[0][1] == pytest.approx(states[1], abs=1e-5)

    policy.model.config.max_position_embeddings = 8
    assert policy.token_values([cut]).final == pytest.approx([float(states[1][-1])], abs=1e-5)
    again = replace(cut, turns=(turn, replace(turn, starts_segment=True)))
    assert policy.token_values([again]).final != pytest.approx(
        [float(policy.token_values([again]).values[0][1][-1])]
    )


def test_a_target_follows_its_critic_by_its_rate(make: Make) -> None:
    policies = make(TrainConfig(learning_rate=1e-2), CRITIC)
    critic, target = policies["critic"], policies["target"]
    begun = state(target)
    assert changed(begun, state(critic)) == set(), "it begins where the critic begins"
    main_before = state(policies.main)
    train(policies, "critic", VALUES, steps=1)
    moved, led = state(target), state(critic)
    assert len(changed(begun, led)) > 2 and "head.linear.weight" in changed(begun, moved)
    for name, tensor in moved.items():
        assert torch.allclose(tensor, begun[name] + 0.25 * (led[name] - begun[name]), atol=1e-7), name
    train(policies, "critic", VALUES, steps=1)
    again = state(target)
    for name, tensor in again.items():
        led_now = critic.model.state_dict().get(name, led[name])
        if not name.startswith("head."):
            assert torch.allclose(tensor, moved[name] + 0.25 * (led_now - moved[name]), atol=1e-7), name
    assert changed(main_before, state(policies.main)) == set()
    train(policies, MAIN, steps=1)
    assert changed(again, state(target)) == set(), "it follows the critic alone"
    assert list(policies.trained) == [MAIN, "critic"]


def test_what_critics_and_targets_learned_is_saved_and_loaded(make: Make, tmp_path: Path) -> None:
    policies = make(TrainConfig(learning_rate=1e-2), {**CRITIC, **REFERENCE})
    train(policies, "critic", VALUES)
    train(policies, MAIN, steps=2)
    policies.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"critic", "target"}
    again = make(TrainConfig(learning_rate=1e-2), {**CRITIC, **REFERENCE})
    assert changed(state(policies["target"]), state(again["target"]))
    again.load(tmp_path)
    for name in policies:
        assert changed(state(policies[name]), state(again[name])) == set(), name
        assert again[name].version == policies[name].version
    for each in (policies, again):
        train(each, "critic", VALUES, steps=1)
    for name in ("critic", "target"):
        assert changed(state(policies[name]), state(again[name])) == set(), "the optimizer went on as well"


def test_a_copy_begins_with_the_weights_of_the_one_that_it_copies(
    make: Make, start: Path, other: Path
) -> None:
    """A critic with a model of its own: its target is a copy of that, not of the policy."""
    config = TrainConfig(policies={"critic": PolicySettings(model=str(other))})
    policies = make(config, CRITIC)
    assert changed(state(policies["critic"]), state(policies["target"])) == set()
    plain = make(config, {**CRITIC, "target": replace(CRITIC["target"], follows="")})
    assert changed(state(plain["critic"]), state(plain["target"])) == set()
    assert plain["target"].start == str(other) and plain.main.start == str(start)


def test_a_policy_that_is_not_there_names_the_nearest(make: Make) -> None:
    policies = make(TrainConfig(), REFERENCE)
    with pytest.raises(UsageError, match=r"^policy: got 'refrence'; did you mean 'reference'\?$"):
        _ = policies["refrence"]
    assert "reference" in policies and "refrence" not in policies
    assert list(policies) == [MAIN, "reference"] and len(policies) == 2


@pytest.mark.parametrize(
    ("fields", "specs", "said"),
    [
        (
            {"policies": {"critc": PolicySettings()}},
            CRITIC,
            "policies: got 'critc', which neither the method nor a seat asks for; .* are critic, target",
        ),
        ({"policies": {"critic": PolicySettings()}}, {}, "the policies here are none but policy itself"),
        (
            {"seats": {"white": "stranger"}},
            REFERENCE,
            r"seats.white: got 'stranger', which is no policy of this run; give one of policy, reference, or say "
            r"what it is with policies.stranger",
        ),
        (
            {"policies": {"reference": PolicySettings(shares="opponent", lora_rank=1)}},
            REFERENCE,
            r"policies.reference.shares: got 'opponent'; name a policy that comes before it: policy$",
        ),
        (
            {
                "policies": {"opponent": PolicySettings(shares=MAIN, lora_rank=2)},
                "seats": {"white": "opponent"},
            },
            {},
            r"policies.opponent.shares: got 'policy', but policy trains all weights of the model that opponent shares",
        ),
        (
            {
                "lora_rank": 2,
                "policies": {"opponent": PolicySettings(shares=MAIN)},
                "seats": {"white": "opponent"},
            },
            {},
            r"policies.opponent.lora_rank: got 0, but opponent trains all weights of the model that opponent shares",
        ),
        (
            {
                "lora_rank": 2,
                "policies": {"opponent": PolicySettings(shares=MAIN, lora_rank=2, model="x")},
                "seats": {"white": "opponent"},
            },
            {},
            "policies.opponent.model: got 'x' with shares 'policy'; give one of the two",
        ),
    ],
)
def test_a_configuration_of_policies_that_cannot_be_is_refused(
    fields: dict[str, Any], specs: dict[str, PolicySpec], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_policies(TrainConfig(**fields), specs)


def test_what_the_configuration_says_of_a_policy_goes_before_the_method() -> None:
    config = TrainConfig(
        seats={"white": "opponent"},
        device="cpu",
        lora_rank=3,
        policies={"opponent": PolicySettings(is_trained=False, learning_rate=0.1)},
    )
    plan = plan_policies(config, REFERENCE)
    assert list(plan) == [MAIN, "reference", "opponent"]
    assert plan["opponent"] == (None, config.policies["opponent"])
    assert plan[MAIN][1].lora_rank == 3 and plan["reference"][1].lora_rank == 0
    assert plan["reference"][1].device == "cpu", "a copy runs where the policy runs"


def test_adapters_on_one_model_leave_each_other_and_the_model_alone(make: Make, start: Path) -> None:
    policies = make(ADAPTED, REFERENCE)
    main, opponent, reference = policies.main, policies["opponent"], policies["reference"]
    assert main.model is opponent.model is reference.model
    assert list(policies.trained) == list(policies.acting) == [MAIN, "opponent"]
    begun = said(make(TrainConfig()).main)
    assert all(torch.equal(said(each), begun) for each in policies.values()), "a fresh adapter adds nothing"
    before = state(main)
    train(policies, MAIN)
    moved = changed(before, state(main))
    assert moved and all("lora_" in name and f".{MAIN}." in name for name in moved)
    learned = said(main)
    assert not torch.equal(learned, begun)
    assert torch.equal(said(opponent), begun) and torch.equal(said(reference), begun)
    before = state(main)
    train(policies, "opponent")
    moved = changed(before, state(main))
    assert moved and all("lora_" in name and ".opponent." in name for name in moved)
    assert torch.equal(said(main), learned) and torch.equal(said(reference), begun)
    assert not torch.equal(said(opponent), begun) and not torch.equal(said(opponent), learned)
    assert (main.version, opponent.version, reference.version) == (3, 3, 0)


def test_a_frozen_model_is_not_changed_by_an_adapter_that_another_puts_on_it(make: Make) -> None:
    config = TrainConfig(
        learning_rate=1e-2, policies={"critic": PolicySettings(shares="reference", lora_rank=4)}
    )
    policies = make(config, {**REFERENCE, "critic": CRITIC["critic"]})
    before = said(policies["reference"])
    train(policies, "critic", VALUES)
    assert not torch.equal(said(policies["critic"]), before)
    assert torch.equal(said(policies["reference"]), before)


@pytest.mark.parametrize(
    "config", [TrainConfig(learning_rate=1e-2), TrainConfig(learning_rate=1e-2, lora_rank=4)]
)
def test_weights_of_a_checkpoint_are_put_into_the_model_of_the_start(
    config: TrainConfig, make: Make, start: Path, tmp_path: Path
) -> None:
    policies = make(config)
    train(policies, MAIN)
    policies.save(tmp_path)
    model = load(str(start)).model
    begun = Forward(model).infer(pack(samples())).logprobs
    load_main(model, asdict(config), tmp_path)
    found = Forward(model).infer(pack(samples())).logprobs
    assert torch.equal(found, said(policies.main)) and not torch.equal(found, begun)


@pytest.mark.slow
def test_a_policy_with_an_adapter_is_served_by_a_process(make: Make, tmp_path: Path) -> None:
    policies = make(TrainConfig(learning_rate=1e-2, lora_rank=4, engine="process"))
    main = policies.main
    assert main.learner is not None and main.engine is not None
    try:
        canary = Canary(main.learner)
        assert canary.check(main.engine) < 1e-4
        train(policies, MAIN, steps=1)
        hand_over(main.engine, main.model, main.version, tmp_path)
        assert canary.check(main.engine) < 1e-4
    finally:
        main.engine.close()


def test_adapters_are_saved_and_loaded_each_by_itself(make: Make, tmp_path: Path) -> None:
    policies = make(ADAPTED, REFERENCE)
    train(policies, MAIN)
    train(policies, "opponent", steps=2)
    policies.save(tmp_path)
    again = make(ADAPTED, REFERENCE)
    again.load(tmp_path)
    assert changed(state(policies.main), state(again.main)) == set()
    for name in policies:
        assert torch.equal(said(policies[name]), said(again[name])), name
        assert policies[name].version == again[name].version
    for each in (policies, again):
        train(each, "opponent", steps=1)
        train(each, MAIN, steps=1)
    assert changed(state(policies.main), state(again.main)) == set(), "optimizers went on as well"
    with pytest.raises(ConfigError, match="starting over: got the policy policy, which trains LoRA layers"):
        policies.main.start_over()


def sampled(engine: Engine | None) -> tuple[tuple[int, ...], tuple[float, ...]]:
    assert engine is not None
    sampling = Sampling(max_tokens=8)
    engine.submit(Request(session="s", prompt_ids=(5, 6, 7), seed=3, sampling=sampling))
    while not (replies := engine.advance()):
        pass
    engine.release("s")
    completion = replies[0].result
    assert isinstance(completion, Completion)
    return completion.token_ids, completion.logprobs


def test_each_engine_samples_with_its_own_adapter_whichever_was_on(make: Make) -> None:
    policies = make(ADAPTED, REFERENCE)
    train(policies, MAIN)
    train(policies, "opponent")
    for policy in policies.acting.values():
        assert policy.engine is not None
        policy.engine.load_weights(policy.version, None)
    alone = {name: sampled(policy.engine) for name, policy in policies.acting.items()}
    assert alone[MAIN] != alone["opponent"]
    for last, name in ((each, name) for name in alone for each in ("reference", "opponent", MAIN)):
        said(policies[last])
        assert sampled(policies[name].engine) == alone[name], f"{name} after {last}"


def test_starting_over_is_the_start_with_a_fresh_optimizer(make: Make) -> None:
    policies, plain = (
        make(TrainConfig(learning_rate=1e-2), has_critic=True),
        make(TrainConfig(), has_critic=True),
    )
    main = policies.main
    train(policies, MAIN)
    train(policies, MAIN, VALUES)
    assert changed(state(plain.main), state(main)) and main.learner is not None
    main.start_over()
    assert changed(state(plain.main), state(main)) == set(), "its value head, too"
    assert not main.learner.optimizer.state and main.version == 6


def test_a_seat_of_a_policy_of_its_own_has_its_own_model(make: Make, other: Path) -> None:
    config = TrainConfig(seats={"white": "opponent"}, policies={"opponent": PolicySettings(model=str(other))})
    policies = make(config)
    assert list(policies.acting) == list(policies.trained) == [MAIN, "opponent"]
    assert changed(state(policies.main), state(policies["opponent"]))
    before = state(policies.main)
    train(policies, "opponent")
    assert changed(before, state(policies.main)) == set()


@pytest.mark.slow
def test_a_run_with_lora_keeps_its_adapter(tmp_path: Path) -> None:
    folder = quintain.train(
        "grpo", run="a", root=tmp_path, model="micro", environment="guess?high=4", steps=1, demonstrations=4,
        imitation_epochs=1, tasks=2, group_size=2, eval_episodes=2, lora_rank=2, lora_alpha=4.0,
        lora_targets=("q_proj",), keeps_adapter=True,
        optimizer="sgd", lr_schedule="cosine", lr_warmup=1, gradient_checkpointing=True, weight_decay=0.1,
    )  # fmt: skip
    kept = json.loads((folder / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
    assert (kept["r"], kept["lora_alpha"], kept["target_modules"]) == (2, 4.0, ["q_proj"])
    names = set(load_file(folder / "adapter" / "adapter_model.safetensors"))
    assert names and all("q_proj.lora_" in name for name in names)
    merged = load(str(folder / "model")).model
    assert not has_adapters(merged)


def test_lora_in_one_line_of_an_earlier_run_is_read() -> None:
    old = {
        "lora": "r=4, targets=q_proj+v_proj,out=adapter",
        "lora_rank": 0,
        "lora_alpha": 16.0,
        "train_branches": "used",
    }
    found = build(TrainConfig, old, "config.json", is_stored=True)
    assert (found.lora_rank, found.lora_alpha, found.keeps_adapter) == (4, 8.0, True)
    assert found.lora_targets == ("q_proj", "v_proj")
    assert build(TrainConfig, {"lora": ""}, "config.json", is_stored=True) == TrainConfig()
    with pytest.raises(ConfigError, match="lora in f: got an earlier name; it is called lora_rank now"):
        build(TrainConfig, {"lora": "r=4"}, "f")
