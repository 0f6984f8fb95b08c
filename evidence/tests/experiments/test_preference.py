"""Experiments of the family `preference`: the tables are the strings' distributions, and null worlds are null."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quintain.data.pack import pack
from quintain.data.pairs import Deviation, Estimate, expert_and_agent, step_pairs
from quintain.data.samples import imitation_samples, pair_samples
from quintain.errors import DataError
from quintain.losses.preference import rpo
from quintain.types import Group, Outputs
from quintain_evidence.experiments.preference import (
    agent_r,
    blocks,
    dmpo,
    dpo,
    e2cl,
    eto,
    ipr,
    m_dpo,
    mpo,
    nat,
    optima,
    owl,
    pgpo,
    rro,
    step_agent,
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_a_table_is_a_distribution_over_all_strings() -> None:
    whole = dpo.strings()
    assert len(whole.texts) == 3 + 9 + 27 + 81 == len(set(whole.texts)) and whole.num_states == 1 + 3 + 9 + 27
    drawn = torch.from_numpy(np.random.default_rng(0).normal(0, 1, dpo.even().shape))
    assert dpo.log_strings(drawn).exp().sum(-1).tolist() == pytest.approx([1.0] * dpo.PROMPTS)
    assert dpo.log_strings(dpo.even()).exp().min().item() == pytest.approx(1 / 120)
    assert dpo.log_strings(dpo.even()).exp().max().item() == pytest.approx(1 / 120)


def test_a_batch_says_of_each_side_what_the_table_says() -> None:
    drawn = torch.from_numpy(np.random.default_rng(1).normal(0, 1, dpo.even().shape))
    places = dpo.batch_of([(0, 5, 100), (3, 119, 0)])
    logs = places.of(drawn)
    streams = [part.sum().item() for part in logs.split(places.batch.lengths)]
    texts = dpo.log_strings(drawn)
    assert streams == pytest.approx(texts[[0, 0, 3, 3], [5, 100, 119, 0]].tolist())
    at_start = dpo.dpo(0.5)(
        Outputs(logprobs=logs, entropy=torch.zeros_like(logs)), dpo.against(places, drawn)
    )
    assert at_start.loss.item() == pytest.approx(np.log(2)) and at_start.metrics["preference/accuracy"] == 0


@pytest.mark.slow
def test_the_reference_is_what_is_tilted_and_an_even_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpo, "BETAS", (1.0,))
    monkeypatch.setattr(dpo, "SEEN", 10)
    (row,) = dpo.measure({"seeds": 1, "comparisons": 5_000, "beta": 1.0}, seed=3)
    assert row["method"] < row["control"] - 0.1
    assert row["null_method"] == row["null_control"]
    assert 0.5 < row["extra.slope1"] < 1.5 and row["extra.coins"] < row["control"]


def test_states_are_equal_up_to_the_names_of_blocks() -> None:
    told = blocks.renamed("a on b | a clear, b on table")
    assert told[0] == blocks.renamed("h on c | c on table, h clear")[0]
    assert told[0] == "x on y | x clear, y on table" and told[1] == {"a": "x", "b": "y"}
    made = blocks.blocks(6, 100)
    assert made.num_cells < made.world.is_legal.sum() / 2
    shared = torch.sin(torch.arange(made.num_cells, dtype=torch.float64))
    policy = made.policy(shared)
    batch = pack(imitation_samples([policy.sample(size=1, seed=0)[0].trajectories[0]]))
    assert torch.allclose(made.speaker(batch)(shared).logprobs.float(), policy(batch).logprobs)
    expert = blocks.table_of(made.world, blocks.expert_policy(made.world))
    assert blocks.solved_of(expert, range(6)) == pytest.approx(1.0)
    noisy = blocks.table_of(made.world, blocks.noisy_policy(made.world, 0.3))
    assert blocks.solved_of(policy, range(6)) < 1 and blocks.solved_of(noisy, range(6)) < 0.95


def test_own_failures_against_those_of_another() -> None:
    made = blocks.blocks(16, 200)
    (row,) = [eto.replication(made, 8, {"updates": 10, "rate": 0.1}, 5)]
    assert row["null_method"] == row["null_control"] == pytest.approx(1.0)
    assert row["extra.start"] < row["method"] and row["extra.pairs"] > 0
    one, other = eto.erring(made, 0.3, 1), eto.erring(made, 0.3, 2)
    best = blocks.expert_policy(made.world) > 0
    own = one.probabilities().numpy()
    assert own[best].min() >= 0.69 and not np.allclose(own, other.probabilities().numpy())


def test_twins_have_the_same_task_and_length() -> None:
    made = blocks.blocks(16, 200)
    policy = eto.erring(made, 0.5, 3)
    found = eto.contrast_episodes(policy.sample(size=2, seed=1, tasks=range(8)), eto.shown(made, range(8)))
    pairs, twins = eto.matched(found, eto.failures_of(eto.erring(made, 0.5, 4), range(8), 0))
    assert len(pairs) == len(twins) > 0
    for pair, twin in zip(pairs, twins, strict=True):
        assert twin.chosen is pair.chosen and twin.rejected.task.id == pair.rejected.task.id
        assert len(twin.rejected.turns) == len(pair.rejected.turns)


@pytest.mark.slow
def test_plans_help_who_listens() -> None:
    assert len(set(mpo.PLANS)) == 22 and ("find", "heat", "put") in mpo.PLANS
    made = mpo.houses(2, 4, 3)
    listening, deaf = made.runs[mpo.LISTENING].mean(-1), made.runs[mpo.DEAF].mean(-1)
    heat = made.kinds == mpo.KINDS.index("heat")
    right, cold = mpo.PLANS.index(("find", "heat", "put")), mpo.PLANS.index(("find", "cool", "heat", "put"))
    assert listening[heat, right].mean() > 0.5 > listening[heat, cold].mean()
    assert np.ptp(deaf[heat].mean(0)) < np.ptp(listening[heat].mean(0))
    table = mpo.planner_world(made)
    assert table.num_cells == 4 * 22 and (table.cells[0] == table.cells[1]).all()
    start = mpo.beginner(table, 9.0, 1)
    best = int(listening[heat].mean(0).argmax())
    assert table.policy(start).probabilities()[int(np.flatnonzero(heat)[0]), best] > 0.9
    row = mpo.replication(made, 1, {"tries": 3}, 4)
    assert row["method"] > row["extra.start"] and row["extra.upside_down"] <= 0.5


def test_a_plan_is_the_only_channel_of_a_form() -> None:
    made, blind = pgpo.form(sees_task=False), pgpo.form(sees_task=True)
    assert (
        pgpo.is_planning(made).sum() == 2 * 4 * 8
        and made.num_cells == 2 * 4 * 8 + 2 * 4 * 4 == blind.num_cells
    )
    sure = pgpo.beginner(made, 0.999, 1)
    assert pgpo.followed(made, sure, range(16)) > 0.99
    assert pgpo.followed(blind, pgpo.beginner(blind, 0.999, 1), range(16)) < 0.01
    rows = [
        row for row, key in enumerate(made.world.keys) if key == "fill (1, 6)" and made.world.task_of[row] < 2
    ]
    assert (made.cells[rows[0]] == made.cells[rows[1]]).all(), "tasks do not matter to who fills it in"
    expert = made.policy(torch.where(pgpo.is_planning(made), 0.0, sure))
    assert 0 < expert.objective() < 0.1
    assert pgpo.expert_of(made).objective() == pytest.approx(1.0)


def test_values_of_plans_point_at_wrong_ones() -> None:
    options = {"margin": 0.5, "updates": 5}
    found = [pgpo.replication(options, seed) for seed in (1, 2)]
    assert sum(row["method"] - row["control"] for row in found) > 0.1
    assert all(row["extra.pairs"] > 5 and row["extra.nll_to_pair"] > 1 for row in found)
    made = pgpo.form(sees_task=False)
    deviations = pgpo.parted(made, pgpo.beginner(made, 0.8, 3), range(8), options, 3)
    moved = pgpo.of_others(deviations, 1)
    assert sorted(each.agent_value.mean for each in moved) == sorted(
        each.agent_value.mean for each in deviations
    )
    assert [each.expert_value for each in moved] == [each.expert_value for each in deviations]
    assert pgpo.undoubted(deviations[0]).agent_value.mean == float(deviations[0].agent.is_success)
    nothing = pgpo.direction(made, pgpo.beginner(made, 0.8, 3), pgpo.Pairs(()), pgpo.dpo(0.1))
    assert not nothing.any()


def test_prices_make_dialogues_short_and_keep_them_plain() -> None:
    start = optima.beginner(3)
    assert optima.expected(start, (1, 1, 1)) == pytest.approx(3)
    assert optima.expected(start, optima.TOKENS) == pytest.approx(3 * (0.35 * 2 + 0.45 * 6 + 0.2), rel=0.2)
    assert start.objective() == pytest.approx(0.8**3, abs=0.1)
    sure = optima.TablePolicy(start.world, torch.log_softmax(30 * torch.eye(9)[0].repeat(6, 1), -1))
    assert sure.objective() == pytest.approx(1.0) and optima.expected(sure, optima.TOKENS) == pytest.approx(6)
    row = optima.replication({"rate": 0.25, "rounds": 2, "tasks": 12}, 5)
    assert row["method"] < row["control"] and row["null_method"] == row["null_control"] == pytest.approx(
        np.log(9)
    )
    assert row["extra.kept"] > 1 and row["extra.cryptic"] < row["extra.cryptic_unpriced"]


def test_a_planner_helps_workers_that_were_not_there() -> None:
    made, rows = owl.workforce(7)
    due = owl.orders(7)
    assert due.shape == (6, 3) and all(len(set(order)) == 3 for order in due.tolist())
    sure = owl.perfect(made)
    assert all(owl.success(made, sure, crew) == pytest.approx(1.0) for crew in owl.CREWS)
    start = owl.beginner(made, rows, {}, 1)
    chances = made.policy(start).probabilities()
    place = {row: number for number, row in enumerate(rows)}
    first, second, third = (float(chances[place[crew, 0, 0, ("", -1), 0], 0]) for crew in owl.CREWS)
    assert (first, second) == (pytest.approx(0.95), pytest.approx(0.75)) and second == third
    assert owl.is_exchanged("B", 2) and not owl.is_exchanged("B", 3) and owl.is_exchanged("C", 3)
    assert chances[place["A", 0, 0, ("failed", 4), -1], 4] > chances[place["A", 0, 0, ("not due", 4), -1], 4]
    played = owl.as_played(made.policy(start).sample(size=2, seed=0, tasks=owl.tasks_of("A")))
    turns = played[0].trajectories[0].turns
    assert [turn.seat for turn in turns[:2]] == ["agent/plan", "agent"]
    row = owl.replication({"skill": 1.5, "rate": 0.05, "groups": 4}, 3)
    assert row["method"] > row["control"] and row["null_method"] == row["null_control"] == 0.0
    assert row["extra.told"] > 0.02 < row["method"]


def test_permuted_worth_stays_in_its_family() -> None:
    families = [[(ipr.episode([k], 0.0, k), float(10 * f + k)) for k in range(5)] for f in range(2)]
    moved = mpo.mixed(families, 3)
    assert [sorted(v for _, v in family) for family in moved] == [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]
    assert moved != families and [[t for t, _ in f] for f in moved] == [[t for t, _ in f] for f in families]


def test_values_find_the_turn_that_decided() -> None:
    (row,) = ipr.measure({"seeds": 1, "tasks": 8}, 11)
    assert row["method"] == 1.0 > row["control"] and row["extra.outcomes"] == pytest.approx(1 / 3)
    assert row["null_method"] == row["null_control"] == 0 == row["extra.harm"]
    assert row["extra.right"] > 0.8 and abs(row["extra.detour"]) < 0.1


def test_in_a_world_of_one_turn_step_pairs_are_pairs_of_episodes() -> None:
    expert, agent = ipr.episode([1], 1.0, 0), ipr.episode([2], 0.0, 1)
    values = {"expert_value": Estimate((1.0,)), "agent_value": Estimate((0.0,))}
    (step,) = step_pairs([Deviation(expert=expert, agent=agent, turn=0, **values)])
    (whole,) = expert_and_agent([Group(task=agent.task, trajectories=(agent,))], {"t": expert})
    losses: list[float] = []
    for pair in (step, whole):
        batch = pack(pair_samples([pair]))
        batch = replace(batch, extra=replace(batch.extra, reference_logprobs=-torch.ones(4)))
        said = Outputs(logprobs=torch.tensor([0.0, -0.5, 0.0, -2.0]), entropy=torch.zeros(4))
        losses.append(rpo(0.1)(said, batch).loss.item())
    assert losses[0] == losses[1]


def test_weights_by_turn_look_at_the_first_and_away_from_the_last() -> None:
    row = dmpo.replication({"pairs": 60, "updates": 5}, 3)
    assert row["extra.key1"] == row["method"] - row["control"] > 0.5 > 0 > row["extra.key6"]
    assert row["null_method"] == row["null_control"] > 0
    batch = dmpo.drawn(6, 0, {"pairs": 3}, 0)
    other = dmpo.permuted(batch, 1)
    for stream in range(len(batch.lengths)):
        own = (batch.sequence_id == stream) & (batch.turn_id >= 0)
        assert sorted(other.turn_id[own].tolist()) == list(range(6))
    assert (other.turn_id[batch.turn_id < 0] < 0).all() and not torch.equal(other.turn_id, batch.turn_id)


def test_masks_count_as_many_tokens_and_are_one_where_nothing_is_observed() -> None:
    stream = imitation_samples([ipr.episode([1, 2, 3], 1.0, 0)])[0]
    rng = np.random.default_rng(0)
    counts = [int(weigh(stream, rng).loss_weight.sum()) for weigh in m_dpo.WEIGHS.values()]
    assert counts == [3, 3, 5]
    drawn = {tuple(m_dpo.anywhere(stream, rng).loss_weight.tolist()) for _ in range(50)}
    assert len(drawn) == 10 and all(weights[0] == 0 for weights in drawn), "3 of 5 places after the prompt"
    alone = imitation_samples([ipr.episode([1], 1.0, 0)])[0]
    for weigh in m_dpo.WEIGHS.values():
        assert weigh(alone, rng).loss_weight.tolist() == alone.loss_weight.tolist()


@pytest.mark.slow
def test_both_updates_are_the_same_in_a_world_of_one_turn() -> None:
    options = {"tasks": 12, "updates": 120, "batches": 1}
    (row,) = m_dpo.batches(m_dpo.ONE_TURN, options, 8)
    assert row["method"] == row["control"] == row["extra.all"]
    assert row["extra.kto"] == pytest.approx(row["method"], abs=1e-4)


@pytest.mark.slow
def test_the_same_episodes_are_shown_under_both_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    world, few = "collab?slots=2&values=2", {"successes": 3, "failures": 4}
    pupil = nat.new_pupil([world], seed=0, model="micro?tokens=words", texts=nat.SENTENCES.values())
    shown = nat.gathered(pupil, world, 0.3, few, 0)
    assert sorted(each["right"].is_success for each in shown) == [False] * 4 + [True] * 3
    for each in shown:
        right, wrong = (
            [turn.completion.token_ids for turn in each[label].turns] for label in ("right", "wrong")
        )
        assert right == wrong and each["right"].turns[0].prompt_ids != each["wrong"].turns[0].prompt_ids
    assert all(each["right"].is_success for each in nat.gathered(pupil, world, 0.0, few, 0))
    monkeypatch.setattr(nat, "MOST", 200)
    with pytest.raises(DataError, match="demonstrations of collab"):
        nat.gathered(pupil, world, 0.3, {"successes": 0, "failures": 999}, 0)


@pytest.mark.slow
def test_every_arm_is_measured() -> None:
    options = {"successes": 3, "failures": 4, "updates": 2, "held_out": 4}
    found = nat.arms("collab?slots=2&values=2", 0.3, options, 1)
    assert set(found) == {"labelled", "under wrong", "permuted", "successes"}
    assert set(nat.arms("collab?slots=2&values=2", 0.0, options, 1)) == {"labelled", "permuted"}


def test_pages_are_alike_by_what_they_are_to_the_goal() -> None:
    made = agent_r.sites(agent_r.DEEP, 3, 40)
    assert {view for view in made.views if not view.startswith("route")} == {
        "other list", "other thing", "sign", "not", "order"
    }  # fmt: skip
    starts = made.world.start.tolist()
    assert [made.views[s] for s in starts] == ["route 1"] * 3 and made.distance[starts].tolist() == [3.0] * 3
    assert made.table.num_cells < 30
    start = agent_r.start_of(made, 0.6, 0.02, only_dead_ends=False)
    chances = made.table.policy(start).probabilities().numpy()
    right = made.kinds[starts[0]].index("right")
    assert chances[starts[0], right] == pytest.approx(0.6, abs=1e-3)
    slipping = agent_r.slipping(made, chances, 0.5)
    assert slipping[starts[0], right] == pytest.approx(0.3, abs=1e-3)
    assert slipping.sum(1) == pytest.approx(chances.sum(1))


@pytest.mark.slow
def test_a_failure_cut_late_teaches_less_and_a_way_of_one_step_is_cut_once() -> None:
    (row,) = agent_r.measure({"seeds": 1, "tasks": 8}, 6)
    assert row["null_method"] == row["null_control"] > row["extra.start"]
    assert row["extra.start"] < row["extra.good"] < row["method"] and row["control"] < row["method"]
    assert row["extra.revised"] > 10 and row["extra.way"] > 1


@pytest.mark.slow
def test_what_rises_is_better_and_where_all_is_alike_nothing_is() -> None:
    (row,) = rro.measure({"seeds": 1, "tasks": 8, "states": 200}, 3)
    assert row["control"] < row["method"] <= row["extra.five"] + 0.02
    assert abs(row["null_method"]) < 1e-9 and abs(row["null_control"]) < 1e-9
    assert row["extra.stakes"] > 0.1 and 1 < row["extra.drawn"] < 4
    world = rro.alike(rro.irreversible(2, 5, rro.SPEC))
    first = int(world.start[0])
    assert len(set(world.next[first].tolist())) == 1


def test_the_same_steps_are_followed_by_other_stops() -> None:
    values = np.array([0.2, 0.8, 0.4, 0.6, 0.0])
    assert rro.rule(list(values), 0.5) == (2, True) and rro.rule(list(values), 0.9) == (5, False)
    assert (
        rro.kept(values, 2, True) == 1 and rro.kept(values, 4, True) == 3 and rro.kept(values, 5, False) == 1
    )
    assert rro.ends(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), values, 3) == 1.0


@pytest.mark.slow
def test_other_agents_steps_in_the_same_states(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = step_agent.measure({"seeds": 1, "tasks": 12}, 4)
    assert row["null_method"] == row["null_control"] == 0 and row["extra.auc_same"] == pytest.approx(0.5)
    assert row["extra.gain"] > 0 and row["extra.pairs"] > 0 and row["extra.auc"] > 0.5
    made = blocks.blocks(2, 30)
    goals = [step_agent.goal_of(blocks.SPEC, task) for task in made.world.tasks]
    sure = blocks.table_of(made.world, blocks.expert_policy(made.world))
    states = step_agent.visited(made, sure, range(2))
    assert step_agent.disagreement(made, sure, states) == pytest.approx(0.0, abs=1e-6)
    (group, *_) = step_agent.acted(made, sure, states, 1, 0)
    seen, done = step_agent.told(made, goals, group.trajectories[0])
    assert done.endswith(("x", "y", "z", "table")) and "onz" in seen.replace("ony", "onz")


@pytest.mark.slow
def test_foretold_words_can_be_put_in_the_place_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 4)
    options = {"episodes": 1, "first": 1, "updates": 1, "held_out": 1, "model": "micro?tokens=words"}
    world = "house?kind=put&errors=typed&things=0"
    pupil = e2cl.taught(world, options, 3)
    monkeypatch.setattr(e2cl, "taught", lambda *_: pupil)
    (row,) = e2cl.measure({"spec": world, **options}, 3)
    assert set(row) > {"method", "control", "extra.kinds", "null_method", "extra.foretold"}
    shown = pupil.show(world, e2cl.tasks_from(world, 1, split="eval"), e2cl.expert_action, seed=0)
    states = e2cl.foreseen(pupil, world, shown, 0, drafts_expert=True)
    assert [each.truth for each in states] == [e2cl.FINE] * len(states)
    assert e2cl.carried_out(pupil, world, states, [e2cl.FINE] * len(states), 0) == [True] * len(states)
    tried = e2cl.carried_out(pupil, world, states, ["closed"] * len(states), 0)
    assert not all(tried), "who knows nothing says nothing that is carried out"
