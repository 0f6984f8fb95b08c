"""What the methods share: refusals, signals of collapse, shares by task, limits by step."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tests.build import make_episode, make_group, make_turn

from quintain.credit.outcome import outcome_return
from quintain.errors import ConfigError
from quintain.methods.find import find_method
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.loops.statistics import measure_task_kinds
from quintain.methods.method import Collector, sample_groups
from quintain.methods.rl import act_more, agent_rl, scaling_inter, twosome
from quintain.methods.rl.loop import bounds
from quintain.methods.rl.parts.continuations import continue_turns, state_values
from quintain.methods.rl.parts.measures import (
    CollapseSigns,
    bias,
    has_collapsed,
    name_options,
    probe_greediness,
    signals,
)
from quintain.methods.table import MODULES
from quintain.rollout.replay import ReplayedEpisode
from quintain.rollout.views import Prefix, View
from quintain.types import Action, Completion, Failure, Group, Outcome, Score, Stop, Task, Trajectory


def episode(value: float, *, kind: str = "e", tokens: int = 2, outcome: Outcome | None = None) -> Trajectory:
    turn = make_turn((int(value * 10),) * tokens, reward=value)
    return make_episode(
        turn,
        task=Task(id=kind, environment=kind, seed=0),
        outcome=outcome or Score(value=value, is_success=value > 0),
        group=kind,
    )


RANGED = frozenset(
    (
        "tasks", "episodes", "num_epochs", "num_minibatches", "max_draws", "rollouts", "pool", "chosen", "window",
        "stage_steps", "turn_tokens", "actions", "overlong_tokens", "constant", "kl_coef", "entropy_coef",
        "overlong_weight", "step_weight", "turn_weight", "vf_coef", "format_weight", "invalid_penalty",
        "format_penalty", "penalty", "bonus", "executed", "information", "long_turn", "progress", "grounding",
        "relabel", "critic_steps", "tolerance", "min_advantage", "clip", "clip_low", "clip_high", "target_kl",
        "smoothing", "adaptive", "reward_scale", "discount", "turn_discount", "gae_lambda", "outcome_fraction",
        "lowest", "highest", "epsilon", "keep",
    )
)  # fmt: skip
"""Settings that -1 is no value of, in whatever method they are numbers."""


def silent(_: Sequence[int]) -> str:
    """A tokenizer that says nothing."""
    return ""


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        (
            "grpo",
            {"group_size": 1},
            "group_size: got 1, and an episode alone has nothing to be compared with",
        ),
        ("grpo", {"tasks": 0}, "tasks: got 0; give an integer of 1 or more"),
        (
            "gspo",
            {"num_epochs": 1, "num_minibatches": 1},
            "num_epochs: got 1 with one minibatch, so that every ratio is 1",
        ),
        (
            "cispo",
            {"num_epochs": 1, "num_minibatches": 1},
            "num_epochs: got 1 with one minibatch, so that every ratio is 1",
        ),
        ("dapo", {"max_draws": 0}, "max_draws: got 0; give an integer of 1 or more"),
        ("dr_grpo", {"constant": 0.0}, "constant: got 0.0; give a number above 0"),
        ("loop", {"clip": 0.0}, "clip: got 0.0; give a number above 0"),
        ("openmanus", {"max_draws": 0}, "max_draws: got 0; give an integer of 1 or more"),
        ("rlsp", {"outcome_fraction": 1.5}, "outcome_fraction: got 1.5; give a share from 0 to 1"),
        ("scaling_inter", {"turns": ()}, r"turns: got \(\); give the turns of each stage"),
        (
            "scaling_inter",
            {"stage_steps": 0},
            "stage_steps: got 0; give an integer of 1 or more",
        ),
        ("ppo", {"episodes": 0}, "episodes: got 0; give an integer of 1 or more"),
        ("ppo", {"num_epochs": 0}, "num_epochs: got 0; give an integer of 1 or more"),
        ("ppo", {"discount": 1.5}, "discount: got 1.5; give a share from 0 to 1"),
        ("ppo", {"gae_lambda": float("nan")}, "gae_lambda: got nan; give a share from 0 to 1"),
        ("gigpo", {"kl_coef": -0.1}, "kl_coef: got -0.1; give a number of 0 or more"),
        ("starpo", {"keep": 0.0}, "keep: got 0.0; give a share above 0, up to 1"),
        ("dapo", {"overlong_tokens": 3}, "overlong_tokens: got 3; give an integer of 4 or more"),
        (
            "grpo_tcr",
            {"lowest": 0.5, "highest": 0.4},
            "lowest, highest: got 0.5, 0.4, between which no group lies",
        ),
        (
            "reinforce",
            {"episodes": 1},
            "episodes: got 1 with baseline others, and an episode alone has no others",
        ),
        (
            "reinforce_plus_plus",
            {"tasks": 1},
            "tasks, group_size: got 1, 1, and an episode alone cannot be whitened",
        ),
        (
            "reinforce_plus_plus",
            {"group_size": 4, "discount": 0.9},
            "discount: got 0.9 with group_size 4, where outcomes are compared whole",
        ),
        ("scaling_inter", {"turns": (5, 3)}, r"turns: got \(5, 3\), which shrink"),
    ],
)
def test_settings_that_leave_nothing_to_learn_are_refused(
    name: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        find_method(name).config_class(**fields).check()


@pytest.mark.slow
def test_counts_and_weights_of_every_method_have_a_range() -> None:
    """Defaults lie within, and what is below them does not, whatever the method."""
    for name, module in MODULES.items():
        config = find_method(name).config_class
        if ".rl." not in module:
            continue
        config().check()
        for field in fields(config):
            if field.name in RANGED and isinstance(field.default, int | float):
                with pytest.raises(ConfigError, match=f"{field.name}: got -1"):
                    replace(config(), **{field.name: -1}).check()


def test_what_the_environment_lacks_is_refused_at_the_start(runner: Any) -> None:
    plain = runner.config("grpo").environment.replace("Corridor", "Plain")
    with pytest.raises(
        ConfigError, match=r"got one without tools, whose calls this method counts; count turns"
    ):
        runner.train("otc", environment=plain)
    with pytest.raises(
        ConfigError, match=r"got one that does not list its legal actions.*; give it legal_actions"
    ):
        runner.train("greedy", environment="guess", tries_all=True)
    with pytest.raises(ConfigError, match="got one without tools"):
        runner.train("policy_gradient", environment=plain, rewards="success,economy")
    with pytest.raises(ConfigError, match=r"got one without state keys.*give it a method state_key\(\)"):
        runner.train("gigpo", environment=plain)
    with pytest.raises(ConfigError, match="episodes without a reward before their last turn"):
        runner.train("mt_grpo", environment=plain, executed=0.0)
    with pytest.raises(ConfigError, match="episodes without a turn that is called an answer"):
        runner.train("mucode", environment=plain)


def test_the_clip_of_loop_is_symmetric_in_the_logarithm() -> None:
    low, high = bounds(0.1)
    assert (1 - low, 1 + high) == (pytest.approx(0.909090909), 1.1)
    assert np.log(1 - low) == pytest.approx(-np.log(1 + high))


def test_collapse_is_seen_in_three_numbers() -> None:
    found = signals(
        [make_group(episode(1), episode(0)), make_group(episode(1, kind="f"), episode(1, kind="f"))]
    )
    assert found == {"collapse/reward_std": 0.25, "collapse/repetition": 0.5}
    assert signals([]) == {"collapse/reward_std": 0.0, "collapse/repetition": 0.0}
    healthy = {"collapse/reward_std": 0.4, "policy/entropy": 1.0, "train/success": 0.5}
    echo = {"collapse/reward_std": 0.05, "policy/entropy": 0.1, "train/success": 0.4}
    assert has_collapsed([healthy] * 5 + [echo] * 5)
    assert not has_collapsed([healthy] * 5 + [echo] * 4)
    assert not has_collapsed([healthy] * 10)
    assert not has_collapsed([healthy] * 5 + [{**echo, "train/success": 0.9}] * 5)
    signs = CollapseSigns()
    assert signs([], silent) == {**signals([]), "collapse/has_collapsed": 0.0}
    for row in [{"eval/success": 0.5}, *[healthy] * 5, *[echo] * 4]:
        signs.observe(row)
    assert signs([], silent)["collapse/has_collapsed"] == 0.0
    signs.observe(echo)
    assert signs([], silent)["collapse/has_collapsed"] == 1.0


def test_a_mixed_step_says_what_each_kind_of_task_contributes() -> None:
    groups = [
        make_group(episode(1, kind="a"), episode(0, kind="a")),
        make_group(episode(-10, kind="b"), episode(10, kind="b", tokens=1)),
        make_group(episode(0, kind="c", outcome=Failure(owner="engine", kind="k", message="m"))),
    ]
    found = measure_task_kinds(groups, outcome_return(groups))
    assert found["task/a/success"] == 0.5
    assert (found["task/a/reward"], found["task/a/reward_std"]) == (0.5, 0.5)
    assert (found["task/b/reward"], found["task/b/reward_std"]) == (0, 10)
    assert found["task/a/gradient_share"] == pytest.approx(2 / 32)
    assert found["task/b/gradient_share"] == pytest.approx(30 / 32)
    assert not any("/c/" in name for name in found)
    assert measure_task_kinds(groups[:1], outcome_return(groups[:1])) == {}


def test_a_limit_by_step_is_asked_for_with_the_episodes() -> None:
    asked: list[tuple[int, int, int | None, int | None]] = []

    def sample(
        step: int,
        tasks: list[int],
        *,
        size: int,
        max_turns: int | None,
        agent: None,
        later_turns: Callable[[int], int | None],
    ) -> list[Group]:
        asked.append((step, size, max_turns, later_turns(step + 1)))
        return []

    collector = cast(Collector, SimpleNamespace(sample=sample, tasks=lambda step, count: [0] * count))
    sample_groups(2, 3)(collector, 5)
    sample_groups(2, 3, max_turns=lambda step: step + 1)(collector, 9)
    assert asked == [(5, 3, None, None), (9, 3, 10, 11)]


def test_tasks_are_those_that_the_chooser_names_out_of_a_larger_pool() -> None:
    def tasks(_: int, count: int) -> list[Task]:
        return [Task(id=str(i), environment="ab"[i % 2], seed=i) for i in range(count)]

    def sample(_: int, taken: list[Task], *, size: int) -> list[tuple[str, int]]:
        return [(task.id, size) for task in taken]

    collector = cast(Collector, SimpleNamespace(tasks=tasks, sample=sample, seed=lambda *_: 0))
    chooser = SimpleNamespace(choose=lambda levels, count, _: ["b", "b", *levels][:count], update=None)
    found = agent_rl.sample_by(cast(Any, chooser), 3, 5, 2)(collector, 1)
    assert cast(Any, found) == [("1", 5), ("3", 5), ("0", 5)]


def test_what_the_horizon_cut_can_be_left_out() -> None:
    whole = Group(
        task=Task(id="t", environment="w", seed=0),
        trajectories=(episode(1.0), replace(episode(0.0), stop=Stop.CUT)),
    )
    assert list(scaling_inter.method(scaling_inter.Config()).keep([whole])) == [whole]
    (left,) = scaling_inter.method(scaling_inter.Config(cut="left_out")).keep([whole])
    assert left.trajectories == whole.trajectories[:1]


def test_the_horizon_is_a_function_of_the_step() -> None:
    config = scaling_inter.Config(turns=(5, 10, 20), stage_steps=100)
    steps = (1, 100, 101, 200, 201, 900)
    assert [scaling_inter.horizon(config, step) for step in steps] == [5, 5, 10, 10, 20, 20]


def acted(*keys: tuple[str, str | None, int]) -> Trajectory:
    """An episode from (action, state before it, tokens) of each turn; the first action always pays 1."""
    base = episode(1.0)
    turns = tuple(
        replace(
            base.turns[0],
            action=Action(text=text),
            state_key=key,
            reward=float(number == 0),
            completion=Completion(token_ids=(5,) * tokens, logprobs=(-1.0,) * tokens, stop="stop"),
        )
        for number, (text, key, tokens) in enumerate(keys)
    )
    return replace(base, turns=turns)


def test_probes_of_a_step() -> None:
    groups = [
        make_group(acted(("a", "s", 2), ("a", "s", 4))),
        make_group(acted(("a", "s", 2), ("b", "u", 2))),
    ]
    assert probe_greediness(groups, silent) == {
        "greedy/coverage": 0.75,
        "greedy/share": 0.5,
        "greedy/bias": 0.0,
    }
    assert probe_greediness([], silent) == {}
    one = acted(("a", "s", 2), ("a", "s", 4))
    first, second = one.turns
    told = replace(
        one,
        turns=(
            replace(first, reward_terms={"coverage": 0.1, "regret": 0.5}),
            replace(second, reward_terms={"coverage": 0.0, "regret": 0.5}),
        ),
    )
    found = probe_greediness([make_group(told)], silent)
    assert (found["greedy/coverage"], found["greedy/regret"]) == (0.1, 1.0), "the environment knows best"
    assert act_more.conduct(groups, silent) == {
        "acting/tokens_per_turn": 2.5,
        "acting/turns": 2.0,
        "acting/without_evidence": 0.5,
    }
    assert act_more.conduct([], silent) == {}


def test_what_stands_often_is_chosen_again_or_not() -> None:
    assert bias([["a", "a", "a", "b"]]) == -0.5
    # a, b, b, b: of what stood once 1 of 4 was taken again, of what stood twice all of 1.
    assert bias([["a", "b", "b", "b"], ["x"], ["x", "y"]]) == 0.75


def test_knowing_and_doing_are_compared_where_a_rationale_names_an_option() -> None:
    keys = (("a", "s", 1), ("a", "s", 2), ("b", "s", 3))
    said = {1: "try a: a", 2: "b is untried, but a", 3: "b"}
    found = probe_greediness([make_group(acted(*keys))], lambda ids: said[len(ids)])
    # Untried options come first: a was right and done, b was named and a done, then nothing was said.
    assert found["greedy/known"] == pytest.approx(2 / 3) and found["greedy/gap"] == pytest.approx(0.5)
    assert "greedy/gap" not in probe_greediness([make_group(acted(*keys))], lambda _: "a")
    hidden = probe_greediness([make_group(acted(*keys))], lambda ids: "b, so a" if len(ids) == 1 else "")
    assert (hidden["greedy/known"], hidden["greedy/gap"]) == (0, 0)
    assert name_options(acted(*keys), ["a", "b"], silent) == [None] * 3


def test_a_reason_before_an_action_names_an_option_by_its_last_word() -> None:
    told = acted(("best: gold; pull red", "s", 2), ("pull gold", "s", 2))

    def decode(ids: Sequence[int]) -> str:
        return "best: gold; pull red"

    options = ["pull gold", "pull red"]
    assert name_options(replace(told, turns=told.turns[:1]), options, decode) == ["pull gold"]


def test_a_macro_action_lasts_as_long_as_it_says() -> None:
    turn = episode(0.0).turns[0]
    assert twosome.duration(turn) == 1
    assert twosome.duration(replace(turn, reward_terms={"duration": 3.0})) == 3


def test_values_of_states_are_those_of_continued_episodes() -> None:
    """A state from which nothing could be continued keeps the return that was seen."""
    original = acted(("a", "s", 1), ("b", "s", 1), ("c", "s", 1))
    other = acted(("a", "s", 1))
    broken = replace(original, outcome=Failure(owner="environment", kind="k", message="m"))

    def better(number: int) -> Trajectory:
        turns = (*original.turns[:number], replace(original.turns[number], reward=2.0))
        return replace(original, turns=turns)

    continued = [make_group(better(1), replace(better(1), turns=original.turns[:2])), make_group(broken)]
    asked: list[tuple[int, int, int | None]] = []

    def continue_from(step: int, prefixes: list[Prefix], *, size: int, seed: int) -> list[Group]:
        asked.extend((step, len(prefix.turns), size) for prefix in prefixes)
        return continued[: len(prefixes)]

    collector = cast(
        Collector,
        SimpleNamespace(
            replay_episodes=lambda trajectories: [
                ReplayedEpisode(trajectory=t, views=(View(observation=""),) * 4, states=None)
                for t in trajectories
            ],
            continue_from=continue_from,
        ),
    )
    groups = [make_group(original, replace(other, outcome=Score(value=0.0, is_success=False)))]
    branch = continue_turns(2)
    branches = branch(collector, 7, groups)
    assert list(branches) == [(0, 1), (0, 2)]
    assert state_values(groups, branches) == [[0.5, 1.0, 0.0], [0.5]]
    assert asked == [(7, 1, 2), (7, 2, 2)]
    assert branch(collector, 7, []) == {} and state_values([], {}) == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_kl_in_the_loss_holds_where_groups_agree_too(name: str) -> None:
    """A group without variance has no policy gradient and is where the policy is solved, or stuck: it is held there."""
    found = find_method(name)
    given = {"kl_coef": 0.1, "group_size": 4}
    known = {field.name for field in fields(found.config_class)}
    method = found.make(found.config_class(**{key: given[key] for key in given if key in known}))
    if isinstance(method, OnPolicy) and method.update.has_reference and not method.update.is_own_reference:
        assert method.update.keeps_zeros
