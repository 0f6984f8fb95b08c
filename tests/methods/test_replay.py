"""The replay loop: priorities, ways on from recorded turns, logs of other runs, and critics that are measured."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.methods.test_loops import CONFIG, drawn, episode, group
from tests.methods.test_training import interrupting, rows, weights

from quintain.credit.turn_td import TurnValues
from quintain.data.samples import whole_prompt
from quintain.errors import ConfigError, DataError, InvariantError, UsageError
from quintain.learning.train_config import MAIN, OnPolicyConfig, PolicySpec
from quintain.learning.update import Update
from quintain.losses.value import value
from quintain.methods.critic.turn_critics import CRITICS, TARGETS, make_twins, on_policy_targets, watch_twins
from quintain.methods.find import find_method
from quintain.methods.loops.queries import PolicyQueries, take_turn
from quintain.methods.loops.replay import Buffer, CriticUpdate, Replay, ReplayBuffer
from quintain.methods.loops.requirements import begin_run
from quintain.methods.method import Needs, sample_groups
from quintain.methods.table import MODULES
from quintain.runs.context import TrainingContext
from quintain.store.run import Run
from quintain.types import Trajectory

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.slow
def test_every_method_of_the_loop_has_a_critic_that_is_watched() -> None:
    found = {name: find_method(name) for name in MODULES}
    made = {name: method.make(method.config_class()) for name, method in found.items()}
    watched_by = {name: each.critic is not None for name, each in made.items() if isinstance(each, Replay)}
    watched = dict.fromkeys(("archer", "digi_q", "digi_rl", "moe_dialogue", "web_rl"), True)
    assert watched_by == {**watched, "tti": False}, "TTI imitates what is in its buffer, and has no critic"


def surprise(episodes: Sequence[Trajectory], consultation: PolicyQueries) -> list[float]:
    """How far the first critic is from the return, which depends on its weights."""
    said = consultation.turn_values(episodes, by=CRITICS[0])
    return [abs(t.turns[-1].reward - q[-1]) + 0.01 for t, q in zip(episodes, said.after, strict=True)]


def critics(**fields: Any) -> Replay:
    """Twin critics alone, on two episodes of two tasks a step."""
    updates = [
        CriticUpdate(
            policy=name,
            target=on_policy_targets(number, discount=0.9, ways=lambda e, c: c.resample_actions(e)),
            update=Update(loss=value(), is_on_policy=False),
            num_updates=lambda step: 0 if step == 1 else 2,
        )
        for number, name in enumerate(CRITICS)
    ]
    made = Replay(
        collect=sample_groups(2, 2),
        buffer=ReplayBuffer(capacity=6, batch_size=3, fresh_share=0.4, priority=surprise),
        updates=updates,
        critic=watch_twins(0.9),
        needs=Needs(others=make_twins(polyak=0.5)),
    )
    return replace(made, **fields)


def made_by(method: Replay, folder: Path, config: OnPolicyConfig = CONFIG) -> Path:
    with Run.create(folder, recipe="mine", config=asdict(config)) as run:
        method.train(run, config)
    return folder


@pytest.mark.slow
def test_a_resumed_run_draws_by_priority_and_says_ways_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: buffer, priorities by the critic's weights, fresh turns, twins and their targets."""
    made_by(critics(), tmp_path / "whole")
    with monkeypatch.context() as patch:
        interrupting(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            made_by(critics(), tmp_path / "stopped")
    with Run.open(tmp_path / "stopped") as run:
        critics().train(run, CONFIG)
    whole, resumed = rows(tmp_path / "whole"), rows(tmp_path / "stopped")
    assert whole == resumed and len(whole) == 4
    first, second, third = whole[1:]
    assert "critic_1/value/mean" not in first, "in the first step nothing is learned"
    assert second["critic_1/value/squared_error"] != second["critic_2/value/squared_error"]
    assert third["buffer/effective_size"] < third["buffer/size"] == 6
    assert {"critic/explained_variance", "critic/td_error", "critic/overestimation"} <= third.keys()
    with Run.open(tmp_path / "whole", writable=False) as run:
        uses = [use.episode for step, use in run.uses() if step == 3]
        known = {t.id for t in run.trajectories(phase="train")}
        assert uses and set(uses) <= known and run.latest_checkpoint() is not None


def test_priorities_decide_what_is_drawn() -> None:
    buffer = Buffer(ReplayBuffer(capacity=10, batch_size=2, fresh_share=0.5))
    buffer.add(1, [group(*range(8))])
    buffer.add(2, [group(8, 9)])
    buffer.weigh([0, 0, 1, 3, 0, 0, 0, 0, 1, 0])
    batches = [drawn(buffer, seed) for seed in range(200)]
    assert all(len(set(batch)) == 2 and set(batch) <= {2, 3, 8} and 8 in batch for batch in batches)
    threes = np.mean([3 in batch for batch in batches])
    assert threes == pytest.approx(0.75, abs=0.1), "the other place goes to 2 or 3 as 1 to 3"
    assert buffer.metrics(2)["buffer/effective_size"] == pytest.approx(25 / 11)
    assert len(buffer.draw(0, 9)) == 3, "what has no chance is never drawn"
    late = buffer.only(lambda t: t.seed > 2)
    assert {number for seed in range(20) for number in drawn(late, seed)} == {3, 8}
    assert buffer.only(lambda _: True).draw(7) == buffer.draw(7) and not buffer.only(lambda _: False).draw(7)
    buffer.add(3, [group(10)])
    assert buffer.metrics(3)["buffer/effective_size"] == 10, "other episodes, other priorities"
    for wrong in ([1.0], [-1.0] * 10, [0.0] * 10, [float("nan")] * 10):
        with pytest.raises(InvariantError, match="priorities of 10 episodes: got"):
            buffer.weigh(wrong)


@contextmanager
def consulted(
    folder: Path, config: OnPolicyConfig, needs: Needs
) -> Generator[tuple[TrainingContext, PolicyQueries]]:
    with (
        Run.create(folder, recipe="mine", config=asdict(config)) as run,
        begin_run(needs, config, run) as context,
    ):
        asked = PolicyQueries(context)
        for step in context.steps():
            asked.begin(step)
            yield context, asked
            return


def test_ways_are_said_by_the_policy_and_carried_out_nowhere(tmp_path: Path) -> None:
    with consulted(tmp_path / "run", CONFIG, Needs(legal_actions=True)) as (context, asked):
        groups = sample_groups(2, 2)(context.collector, 1)
        episodes = [t for g in groups for t in g.scored]
        turns, tokens = context.collector.spent.env_steps, context.collector.spent.tokens
        found = asked.resample_actions(episodes, size=3)
        assert [[len(ways) for ways in own] for own in found] == [[3] * len(t.turns) for t in episodes]
        for own, whole in zip(found, episodes, strict=True):
            for number, ways in enumerate(own):
                for way in ways:
                    last = way.episode.turns[-1]
                    assert way.weight == 1 / 3 and way.episode.turns[:number] == whole.turns[:number]
                    assert whole_prompt(way.episode.turns[:-1], last) == whole_prompt(
                        whole.turns[:number], whole.turns[number]
                    )
        flat = [way.episode for own in found for ways in own for way in ways]
        at_sampling = [t.turns[-1].completion.logprobs for t in flat]
        for own, said in zip(asked.logprobs(flat), at_sampling, strict=True):
            assert own[-1].tolist() == pytest.approx(said, abs=1e-4), "sampled as it is trained"
        assert asked.resample_actions(episodes, size=3) == found, "within a step the same"
        assert context.collector.spent.env_steps == turns, "no step of the environment"
        assert context.collector.spent.tokens > tokens, "but tokens are counted"
        every = asked.legal_continuations(episodes)
        for own in every:
            for ways in own:
                assert len(ways) == 2 and sum(way.weight for way in ways) == pytest.approx(1)
                logs = [sum(way.episode.turns[-1].completion.logprobs) for way in ways]
                odds = np.exp(logs) / np.exp(logs).sum()
                assert [way.weight for way in ways] == pytest.approx(odds.tolist(), abs=1e-5)
        asked.begin(2)
        assert asked.resample_actions(episodes, size=3) != found, "another step, other words"
        apart = replace(episodes[0], turns=(replace(episodes[0].turns[0], seat="agent/plan"),))
        with pytest.raises(UsageError, match=r"ways on from turn 0 of .*: got one of agent/plan"):
            asked.resample_actions([replace(apart, id="other")])


def test_ways_of_a_policy_that_rests_stay_the_same(tmp_path: Path) -> None:
    needs = Needs(others={"old": PolicySpec(acts=True)})
    with consulted(tmp_path / "run", CONFIG, needs) as (context, asked):
        episodes = [t for g in sample_groups(2, 2)(context.collector, 1) for t in g.scored]
        found = asked.resample_actions(episodes, size=3, by="old")
        own = asked.resample_actions(episodes, size=3)
        asked.begin(2)
        assert asked.resample_actions(episodes, size=3, by="old") is not found
        assert asked.resample_actions(episodes, size=3, by="old") == found != own
        for ways in (ways for turns in found for ways in turns):
            same = {way.episode.turns[-1].completion.token_ids: way.episode for way in ways}
            assert all(same[way.episode.turns[-1].completion.token_ids] is way.episode for way in ways), (
                "what is said twice is one episode, which is read once"
            )
        again = PolicyQueries(context)
        again.begin(7)
        assert again.resample_actions(episodes, size=3, by="old") == found, "in a resumed run, too"


def test_a_way_ends_with_what_is_said() -> None:
    whole = episode(1)
    way = take_turn(whole, 0, replace(whole.turns[0].completion, token_ids=(7,)))
    assert way.turns[-1].completion.token_ids == (7,) and way.turns[-1].reward == 0.0


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose buffer another one may begin with."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("log") / "run"
    return made_by(
        critics(updates=(), critic=None, needs=Needs(), buffer=ReplayBuffer()),
        folder,
        replace(CONFIG, steps=2),
    )


def offline(log: Path) -> Replay:
    return critics(collect=lambda _, __: [], log=str(log))


@pytest.mark.slow
def test_the_log_of_another_run_fills_the_buffer_and_stands_in_the_journal(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(CONFIG, model=str(log / "start"), demonstrations=0)
    made_by(offline(log), tmp_path / "whole", config)
    whole = rows(tmp_path / "whole")
    assert [row["buffer/size"] for row in whole[1:]] == [6, 6, 6] and whole[3]["total/turns"] == 0
    assert "critic/td_error" in whole[3] and whole[3]["buffer/version_lag"] == 0
    with monkeypatch.context() as patch:
        interrupting(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            made_by(offline(log), tmp_path / "stopped", config)
    monkeypatch.setattr(
        "quintain.warm_start.demonstrations.tokenizer_of", lambda _: pytest.fail("read again")
    )
    with Run.open(tmp_path / "stopped") as run:
        offline(log).train(run, config)
        assert len([event for event in run.events() if event["kind"] == "log"]) == 1
        assert {t.group[:4] for t in run.trajectories(phase="log")} == {"log/"}
        assert run.uses(3)
    assert rows(tmp_path / "stopped") == whole
    assert weights(tmp_path / "stopped" / "model") == weights(tmp_path / "whole" / "model")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agent": "react"}, "got episodes of the agent auto, and this run has react; give agent=auto"),
        ({}, "got episodes of a model with another tokenizer; begin with a model of that run"),
    ],
)
def test_a_log_that_does_not_fit_is_refused(
    log: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        made_by(offline(log), tmp_path / "run", replace(CONFIG, seed=5, **change))


def test_what_a_critic_needs_and_the_environment_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="without a reward before their last turn, which this credit is made of"
    ):
        made_by(critics(needs=Needs(turn_rewards=True, others=make_twins(polyak=1.0))), tmp_path / "run")
    with pytest.raises(ConfigError, match="got one without snapshots"):
        made_by(critics(needs=Needs(snapshots=True)), tmp_path / "other")


@pytest.mark.slow
def test_a_small_encoder_of_its_own(tmp_path: Path) -> None:
    """Critics with another width than the policy, and heads with a layer, are saved and followed like others."""
    config = replace(CONFIG, steps=2)
    needs = Needs(others=make_twins(polyak=0.5, size="mini", head_width=8))
    seen: list[tuple[int, int]] = []

    def values(episodes: Sequence[Trajectory], consultation: PolicyQueries) -> TurnValues:
        policies = consultation._policies  # type: ignore[attr-defined] # pyright: ignore
        seen.append(tuple(policies[n].model.config.hidden_size for n in (MAIN, CRITICS[0])))  # pyright: ignore
        return consultation.turn_values(episodes, by=TARGETS[0])

    made = critics(needs=needs, critic=replace(watch_twins(0.9), values=values, target=None))
    folder = made_by(made, tmp_path / "run", config)
    assert set(seen) == {(32, 64)} and rows(folder)[2]["critic_1/value/squared_error"] > 0
    with pytest.raises(
        ConfigError, match="learner_ranks: got 1 with the policy critic_1, a small network of its own"
    ):
        made_by(made, tmp_path / "ranks", replace(config, learner_ranks=1))
