"""EPO and muCode on tables: the direction that is claimed, controls that keep magnitudes, and null worlds."""

import numpy as np
import pytest

from quintain.credit.segments import segment_weights
from quintain.methods.rl.epo import key_turns
from quintain.types import flatten_scored
from quintain_evidence.experiments.rl import epo, mucode
from quintain_evidence.labs.tables import uniform_start
from quintain_evidence.labs.tabular import states_of


@pytest.mark.slow
def test_scores_lead_a_strategist_and_a_deaf_actor_teaches_nothing() -> None:
    (row,) = epo.measure({"seeds": 1, "batches": 5, "size": 4}, 3)
    assert row["method"] - row["control"] > 0.01
    assert abs(row["null_method"] - row["extra.start"]) < row["method"] - row["extra.start"]
    assert row["extra.heard"] == row["method"] - row["extra.deaf"] > 0


def test_scores_are_exchanged_within_an_episode_and_keep_their_sum() -> None:
    groups = epo.strategist(epo.house(1), 1, skill=2.0).sample(size=2, seed=1)
    credit = segment_weights(groups, [key_turns(t) for t in flatten_scored(groups)], discount=0.5)
    found = epo.exchanged(credit, 3)
    pairs = list(zip(credit.advantages, found.advantages, strict=True))
    for old, new in pairs:
        assert sorted(map(float, np.concatenate(old))) == pytest.approx(
            sorted(map(float, np.concatenate(new)))
        )
    assert any(not np.array_equal(np.concatenate(old), np.concatenate(new)) for old, new in pairs)


def test_a_deaf_actor_goes_where_it_likes() -> None:
    start = epo.strategist(epo.house(1), 1, skill=0.0)
    played = uniform_start(start.world).sample(size=2, seed=1)
    named = epo.unheard(played, start, 1)
    told = [t.turns[0].completion.token_ids for t in flatten_scored(named)]
    assert told != [t.turns[0].completion.token_ids for t in flatten_scored(played)]
    assert [states_of(t) for t in flatten_scored(named)] == [states_of(t) for t in flatten_scored(played)]
    logs = start.logs().detach().numpy()
    turn = flatten_scored(named)[0].turns[0]
    name = turn.completion.token_ids[0] - start.world.num_states
    assert turn.completion.logprobs == (pytest.approx(float(logs[turn.prompt_ids[0], name])),)
    assert turn.action.text == f"thing {name}"


@pytest.mark.slow
def test_relabelling_teaches_to_mend_and_without_a_trace_it_is_imitation() -> None:
    (row,) = mucode.measure({"seeds": 1, "batches": 4}, 3)
    assert row["method"] - row["control"] > 0.02
    assert row["extra.over_other"] > 0.02
    assert row["null_method"] == row["null_control"]


def test_the_controls_imitate_as_many_samples() -> None:
    asked = mucode.drawn(1, {}, leaves_trace=True)
    groups = mucode.told(asked.start.sample(size=8, seed=1))
    method = mucode.mucode.method(mucode.mucode.Config())
    kept = method.keep(groups)
    relabelled = sum(len(other) for _, other in mucode.parts(kept, groups))
    assert relabelled > 0

    def tokens(found: object) -> list[int]:
        return [sum(len(t.turns) for t in g.trajectories) for g in found]  # type: ignore[attr-defined] # pyright: ignore

    again = mucode.as_many(1)(groups, kept, 0)
    others = mucode.of_others(1)(groups, kept, 0)
    assert tokens(again) == tokens(others) == tokens(kept)
    assert sum(tokens(kept)) - sum(tokens(mucode.natural(groups, kept, 0))) == relabelled
    assert all(t.is_success for g in again for t in g.trajectories)
    alone = [kept[0]]
    assert tokens(mucode.of_others(1)(groups, alone, 0)) == tokens(mucode.natural(groups, alone, 0))
