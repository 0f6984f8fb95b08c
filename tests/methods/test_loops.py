"""The loops: rounds that start over, buffers that a resumed run rebuilds, states that are told the same again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from tests.build import make_episode, make_turn
from tests.methods.test_training import interrupting, rows, weights

from quintain.credit.gae import gae_tokens
from quintain.credit.outcome import outcome_return
from quintain.data.pipeline import Pipeline, Stage, check_stage
from quintain.learning.train_config import MAIN, OnPolicyConfig, PolicySpec
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.losses.policy import clip_ratio, reinforce
from quintain.losses.value import value
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.loops.queries import PolicyQueries
from quintain.methods.loops.recall import remember, tell
from quintain.methods.loops.replay import Buffer, CriticUpdate, Replay, ReplayBuffer
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector, CombinedState, Method, Needs, sample_groups, sample_until_mixed
from quintain.rewards.conduct import environment_reward
from quintain.rewards.terms import Term, apply_all
from quintain.runs.context import TrainingContext
from quintain.runs.summary import summary
from quintain.store.run import Run
from quintain.types import (
    Credit,
    Failure,
    Group,
    Sample,
    Score,
    Task,
    Trajectory,
)

CONFIG = OnPolicyConfig(
    environment=f"{Path(__file__).with_name('test_training.py')}:Coin",
    model="micro", demonstrations=4, imitation_epochs=1, steps=3, eval_every=5, eval_episodes=2, learning_rate=3e-3,
    max_turn_tokens=16,
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("quick")


class Diary:
    """A state that writes down what it is told, and pays by it."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def update(self, groups: Sequence[Group]) -> None:
        values = [t.outcome.value for g in groups for t in g.trajectories if isinstance(t.outcome, Score)]
        self.told.append(f"episodes {values}")

    def observe(self, metrics: Mapping[str, float]) -> None:
        clocks = [name for name in metrics if name.startswith(("time/", "machine/", "tokens_per"))]
        assert not clocks, "nothing may depend on how fast the machine was"
        self.told.append(f"metrics of {metrics['step']} {sorted(metrics.items())}")

    def bonus(self) -> Term:
        """Return a term that depends on everything it was told: another history is another reward."""
        return Term(name="bonus", measure=lambda _: float(len("".join(self.told)) % 97) / 97)

    def reward(self, groups: Sequence[Group]) -> Sequence[Group]:
        return apply_all(groups, terms=(environment_reward(), self.bonus()))


@dataclass
class Made:
    """A method with its diary."""

    method: Method
    diary: Diary


def rounds(*, starts_over: bool) -> Made:
    diary = Diary()

    build = Pipeline(
        check_stage(
            "paid",
            "earned .2 at most",
            lambda e: isinstance(s := e.trajectory.outcome, Score) and s.value > 0.2,
        ),
        Stage(name="first", says="is not among the first three", apply=lambda examples: examples[:3]),
    )
    method = Rounds(
        collect=sample_groups(2, 3), build=build,
        update=Update(loss=imitation(), is_on_policy=False, num_minibatches=2),
        starts_over=starts_over, memory=None if starts_over else 1, reward=diary.reward, state=diary,
    )  # fmt: skip
    return Made(method, diary)


def on_policy() -> Made:
    diary = Diary()
    method = OnPolicy(
        collect=sample_groups(2, 3), reward=diary.reward, credit=lambda groups, _: outcome_return(groups),
        update=Update(loss=clip_ratio(), num_epochs=2, num_minibatches=2), state=diary,
    )  # fmt: skip
    return Made(method, diary)


def centred(groups: Sequence[Group], consulted: PolicyQueries) -> Credit:
    """Advantages by the slow critic, as off-policy critics are used."""
    return gae_tokens(groups, consulted.token_values([t for g in groups for t in g.scored], by="target"))


def replay(capacity: int = 8, min_size: int = 1, fresh_share: float = 0.5) -> Made:
    diary = Diary()
    critic = Update(loss=value(), keeps_zeros=True, is_on_policy=False)
    actor = Update(loss=clip_ratio(), keeps_zeros=True, is_on_policy=False, num_minibatches=2)
    method = Replay(
        collect=sample_groups(2, 3),
        buffer=ReplayBuffer(capacity=capacity, batch_size=5, fresh_share=fresh_share, min_size=min_size),
        updates=(
            CriticUpdate(policy="critic", target=centred, update=critic, num_updates=2),
            CriticUpdate(policy=MAIN, target=centred, update=actor),
        ),
        needs=Needs(
            others={
                "critic": PolicySpec(head="value", is_trained=True),
                "target": PolicySpec(copies="critic", head="value", follows="critic", polyak=0.5),
            }
        ),
        reward=diary.reward,
        state=diary,
    )
    return Made(method, diary)


METHODS: dict[str, Callable[[], Made]] = {
    "on_policy": on_policy,
    "rounds": lambda: rounds(starts_over=False),
    "rounds_over": lambda: rounds(starts_over=True),
    "replay": replay,
}


def train(made: Made, folder: Path, config: OnPolicyConfig = CONFIG) -> Path:
    with Run.create(folder, recipe="mine", config=asdict(config)) as run:
        made.method.train(run, config)
    return folder


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_remembers_rewards_and_learns_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = METHODS[name]()
    train(whole, tmp_path / "whole")
    assert len(whole.diary.told) == 6, "of each step its episodes and its metrics, and nothing of step 0"
    with monkeypatch.context() as patch:
        interrupting(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            train(METHODS[name](), tmp_path / "stopped")
    resumed = METHODS[name]()
    with Run.open(tmp_path / "stopped") as run:
        resumed.method.train(run, CONFIG)
    assert resumed.diary.told == whole.diary.told
    assert rows(tmp_path / "stopped") == rows(tmp_path / "whole")
    assert weights(tmp_path / "stopped" / "model") == weights(tmp_path / "whole" / "model")
    assert weights(tmp_path / "whole" / "start") != weights(tmp_path / "whole" / "model")


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, bool]]]:
    """What each round learned from: the number of streams, and whether it began with the starting weights."""
    from quintain.methods.loops import rounds as module

    seen: list[tuple[int, bool]] = []
    learn = module.learn_in_epochs
    starts: list[dict[str, torch.Tensor]] = []

    def watched(policies: Any, samples: Sequence[Sample], *rest: Any, **fields: Any) -> Any:
        now = {name: tensor.clone() for name, tensor in policies.main.model.state_dict().items()}
        starts.append(now)
        seen.append((len(samples), all(torch.equal(now[name], starts[0][name]) for name in now)))
        return learn(policies, samples, *rest, **fields)

    monkeypatch.setattr(module, "learn_in_epochs", watched)
    yield seen


def test_rounds_that_start_over_learn_from_all_rounds_so_far(
    tmp_path: Path, learned: list[tuple[int, bool]]
) -> None:
    train(rounds(starts_over=True), tmp_path / "over")
    kept = np.cumsum([row["data/kept"] for row in rows(tmp_path / "over")[1:]]).tolist()
    assert kept == [size for size, _ in learned] and kept[0] < kept[-1]
    assert all(is_start for _, is_start in learned)
    learned.clear()
    train(rounds(starts_over=False), tmp_path / "on")
    kept = [row["data/kept"] for row in rows(tmp_path / "on")[1:]]
    assert kept == [size for size, _ in learned]
    assert [is_start for _, is_start in learned] == [True, False, False]


def test_a_round_without_data_learns_nothing_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = rounds(starts_over=False)
    method = replace(
        cast(Rounds, made.method), build=Pipeline(check_stage("none", "is never kept", lambda _: False))
    )
    folder = train(replace(made, method=method), tmp_path / "run")
    assert weights(folder / "start") == weights(folder / "model")
    found = rows(folder)[1:]
    assert all(row["data/kept"] == 0 and "train/loss" not in row for row in found)
    num_in = int(sum(row["data/in"] for row in found[:2]))
    says = (
        f"2 of 2 rounds made no data (none left none of {num_in} episodes); begin with a policy that succeeds"
    )
    assert capsys.readouterr().err.count(f"note: {says}") == 1
    with Run.open(folder, writable=False) as run:
        told = summary(run)
    assert f"nothing to learn  {len(found)} of {len(found)} rounds made no data (none left none" in told
    assert told.index("nothing to learn") < told.index("next ")


TURN = make_turn()


def episode(number: int, *, is_failed: bool = False) -> Trajectory:
    return make_episode(
        TURN,
        task=Task(id=f"t{number}", environment="e", seed=number),
        outcome=Failure(owner="engine", kind="k", message="m")
        if is_failed
        else Score(value=1.0, is_success=True),
        seed=number,
        group=f"g{number}",
    )


def group(*numbers: int) -> Group:
    return Group(task=episode(numbers[0]).task, trajectories=tuple(episode(number) for number in numbers))


def drawn(buffer: Buffer, seed: int) -> list[int]:
    return [g.trajectories[0].seed for g in buffer.draw(seed)]


def test_a_buffer_holds_the_newest_scored_episodes() -> None:
    buffer = Buffer(ReplayBuffer(capacity=5, batch_size=9))
    buffer.add(1, [group(0, 1, 2)])
    failed = Group(task=episode(9).task, trajectories=(episode(9, is_failed=True), episode(3)))
    buffer.add(2, [failed])
    assert sorted(drawn(buffer, 0)) == [0, 1, 2, 3], "what failed is nothing to learn from"
    buffer.add(4, [group(4, 5, 6)])
    assert len(buffer) == 5 and sorted(drawn(buffer, 0)) == [2, 3, 4, 5, 6], "the oldest have left"
    found = buffer.metrics(4, version=3)
    assert found == {
        "buffer/size": 5.0, "buffer/age": (3 + 2) / 5, "buffer/version_lag": 3.0, "buffer/effective_size": 5.0,
    }  # fmt: skip
    assert set(Buffer(ReplayBuffer()).metrics(1).values()) == {0.0}


@pytest.mark.parametrize(("share", "fresh"), [(0.0, None), (0.5, 4), (1.0, 6)])
def test_a_share_of_a_batch_is_of_the_newest_step_and_nothing_is_drawn_twice(
    share: float, fresh: int | None
) -> None:
    buffer = Buffer(ReplayBuffer(capacity=100, batch_size=8, fresh_share=share))
    buffer.add(1, [group(*range(40))])
    buffer.add(2, [group(*range(40, 46))])
    batches = [drawn(buffer, seed) for seed in range(50)]
    newest = [sum(number >= 40 for number in batch) for batch in batches]
    assert all(len(set(batch)) == len(batch) == 8 for batch in batches)
    assert len({tuple(batch) for batch in batches}) == 50 and drawn(buffer, 7) == batches[7]
    if fresh is None:
        assert np.mean(newest) == pytest.approx(8 * 6 / 46, abs=0.5)
    else:
        assert min(newest) == fresh


def test_replay_waits_until_there_is_enough_and_tells_of_every_policy(tmp_path: Path) -> None:
    folder = train(replay(capacity=10, min_size=8), tmp_path / "run")
    first, second, third = rows(folder)[1:]
    assert [row["buffer/size"] for row in (first, second, third)] == [6, 10, 10]
    assert [row["buffer/age"] for row in (first, second, third)] == [0, 0.4, pytest.approx(0.4)]
    assert "train/loss" not in first and "critic/value/squared_error" not in first
    for row in (second, third):
        assert row["critic/value/squared_error"] >= 0 and "train/loss" in row
    with Run.open(folder, writable=False) as run:
        checkpoint = run.latest_checkpoint()
        assert checkpoint is not None
        assert {path.name for path in Path(checkpoint.folder).iterdir() if path.is_dir()} == {
            "critic",
            "target",
        }


def test_a_buffer_is_rebuilt_from_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same episodes with the same rewards, in the same order, whatever has left by then."""
    seen: dict[str, list[list[tuple[int, str, float]]]] = {"whole": [], "stopped": []}
    draw = Buffer.draw

    def run_and_watch(name: str, run: Callable[[], object]) -> None:
        def watched(buffer: Buffer, seed: int, size: int | None = None) -> list[Group]:
            drawn = draw(buffer, seed, size)
            seen[name].append(
                [(t.seed, t.task.id, cast(Score, t.outcome).value) for g in drawn for t in g.trajectories]
            )
            return drawn

        monkeypatch.setattr(Buffer, "draw", watched)
        run()

    run_and_watch("whole", lambda: train(replay(capacity=8), tmp_path / "whole"))
    with monkeypatch.context() as patch:
        interrupting(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            train(replay(capacity=8), tmp_path / "stopped")
    with Run.open(tmp_path / "stopped") as run:
        run_and_watch("stopped", lambda: replay(capacity=8).method.train(run, CONFIG))
    assert len(seen["stopped"]) == 3 and seen["stopped"] == seen["whole"][6:9]


def test_the_journal_is_read_for_those_who_remember(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[int] = []
    monkeypatch.setattr("quintain.methods.loops.recall.read_groups", lambda _, step: seen.append(step) or [])
    train(on_policy(), tmp_path / "run")
    with Run.open(tmp_path / "run", writable=False) as run:
        remember(run, CombinedState(None))
        assert not seen
        remember(run, CombinedState(Diary()))
    assert seen == [1, 2, 3]


def test_a_state_is_told_what_the_journal_can_give_back() -> None:
    """Not what is no number there, and nothing of the clock."""
    diary = Diary()
    row: dict[str, Any] = {
        "phase": "train",
        "a": 1,
        "b": float("nan"),
        "c": None,
        "time/step": 2.0,
        "tokens_per_second": 1.0,
    }
    tell(diary, 3, row)
    assert diary.told == ["metrics of 3.0 [('a', 1.0), ('step', 3.0)]"]


class Drawing:
    """A collector whose groups differ where it is told."""

    def __init__(self, *differ: bool | None) -> None:
        self.differ = list(differ)
        self.asked: list[list[int]] = []

    def tasks(self, step: int, count: int) -> list[int]:
        return list(range(count))

    def sample(self, step: int, tasks: list[int], *, size: int) -> list[Group]:
        self.asked.append(tasks)
        return [self.group(self.differ.pop(0)) for _ in tasks]

    @staticmethod
    def group(differs: bool | None) -> Group:
        if differs is None:
            return Group(task=episode(0).task, trajectories=(episode(0, is_failed=True),))
        ends = [
            replace(episode(n), outcome=Score(value=float(differs and n), is_success=False)) for n in (0, 1)
        ]
        return Group(task=ends[0].task, trajectories=tuple(ends))


@pytest.mark.parametrize(
    ("differ", "asked"),
    [
        ((True, True), [[0, 1]]),
        ((True, False, False, True), [[0, 1], [2, 3]]),
        ((False,) * 6, [[0, 1], [2, 3], [4, 5]]),
        ((None, True, True, None), [[0, 1], [2, 3]]),
    ],
)
def test_other_tasks_are_drawn_until_enough_groups_differ(
    differ: tuple[bool | None, ...], asked: list[list[int]]
) -> None:
    """DAPO: no task is drawn twice in a step, equal and failed groups are returned as well, and there is an end."""
    collector = Drawing(*differ)
    found = sample_until_mixed(2, 2, attempts=3)(cast(Collector, collector), 1)
    assert collector.asked == asked and len(found) == len(differ)


def test_a_method_that_measures_and_prepares_does_so_in_its_place(tmp_path: Path) -> None:
    """Prepared once before anything is sampled; what it measures is in the row of the step."""
    order: list[str] = []

    def collect(collector: Collector, step: int) -> list[Group]:
        order.append(f"collect {step}")
        return sample_groups(2, 2)(collector, step)

    def keep(groups: Sequence[Group]) -> Sequence[Group]:
        order.append("keep")
        return groups[:1]

    def branch(_: Collector, __: int, kept: Sequence[Group]) -> dict[tuple[int, int], Group]:
        order.append(f"branch {len(kept)}")
        return {(0, 0): kept[0]}

    def credit(groups: Sequence[Group], estimates: Any) -> Credit:
        if groups:
            order.append(f"credit {len(groups)} {list(estimates.branches)}")
        return outcome_return(groups)

    method = OnPolicy(
        prepare=lambda _: order.append("prepare"), collect=collect, keep=keep, branch=branch, credit=credit,
        update=Update(loss=reinforce()),
        measure=lambda groups, decode: {"mine/text": float(len(decode(groups[0].trajectories[0].turns[0].prompt_ids)))},
    )  # fmt: skip
    with Run.create(tmp_path / "run", recipe="mine", config=asdict(CONFIG)) as run:
        method.train(run, replace(CONFIG, steps=1))
        assert run.metrics()[-1]["mine/text"] > 5
        assert len(list(run.trajectories(step=1, phase="train"))) == 4, "what is not kept is recorded as well"
    assert order == ["prepare", "collect 1", "keep", "branch 1", "credit 1 [(0, 0)]"]


def test_the_models_of_all_policies_that_act_and_learn_are_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its own adapter, whichever was on last."""
    from transformers import AutoModelForCausalLM

    from quintain.learning.sections import PolicySettings

    activated: list[str] = []
    ends: dict[str, dict[str, torch.Tensor]] = {}
    monkeypatch.setattr(TrainingContext, "is_due", lambda self, step: False)  # pyright: ignore[reportUnknownLambdaType]
    config = replace(
        CONFIG, environment=f"{Path(__file__).with_name('test_seats.py')}:Duet", steps=1, lora_rank=2,
        policies={"opponent": PolicySettings(shares=MAIN, lora_rank=2)}, seats={"B": "opponent"},
    )  # fmt: skip
    clock = TrainingContext.clock

    def disturb(context: TrainingContext) -> dict[str, float]:
        if context.run.next_step == 0:
            return clock(context)
        opponent = context.policies["opponent"]
        with torch.no_grad():
            for name, parameter in opponent.model.named_parameters():
                if ".opponent." in name:
                    parameter.add_(0.3)
        opponent.activate()
        activated.append(cast(str, opponent.adapter))
        return clock(context)

    monkeypatch.setattr(TrainingContext, "clock", disturb)
    folder = train(on_policy(), tmp_path / "run", config)
    for name in ("start", "model", "model-opponent"):
        ends[name] = dict(AutoModelForCausalLM.from_pretrained(folder / name).state_dict())
    far = {
        name: max(float((end[key] - ends["start"][key]).abs().max()) for key in end)
        for name, end in ends.items()
    }
    assert activated and 0 < far["model"] < 0.1 < far["model-opponent"], far
