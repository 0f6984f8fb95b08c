"""What steps of imitation used, as the journal names it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.build import make_episode, make_turn

from quintain.data.pack import pack
from quintain.data.pipeline import as_example, example_samples, weigh_turns
from quintain.data.samples import pair_samples
from quintain.learning.signals import Imitated
from quintain.store.run import Run
from quintain.types import (
    Example,
    Outputs,
    Pair,
    Trajectory,
)


def episode(index: int, *sampled: tuple[int, ...]) -> Trajectory:
    turns = tuple(make_turn(ids, logprob=None, shows="o") for ids in sampled)
    return make_episode(*turns, index=index)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", recipe="sft", config={})


def learn(imitated: Imitated, examples: list[Example]) -> None:
    samples = example_samples(examples)
    batch = pack(samples)
    observe = imitated.watch(examples)
    assert observe is not None
    observe(
        samples,
        batch,
        Outputs(
            logprobs=torch.full((len(batch.token_ids),), -0.5),
            entropy=torch.full((len(batch.token_ids),), 0.25),
        ),
    )


def test_weights_of_the_last_training_and_all_episodes_of_every_one(run: Run) -> None:
    shown = [episode(0, (2, 3), (4,)), episode(1, (5,))]
    names = run.append(shown, step=0, phase="demonstrations")
    imitated = Imitated(run, is_on=True)
    learn(imitated, [as_example(t) for t in shown])
    masked = weigh_turns(as_example(replace(shown[0], id=names[0])), [0, 1])
    learn(imitated, [masked])
    uses = imitated.uses()
    assert uses is not None and [use.episode for use in uses] == list(names)
    found = [use.signals.weights.tolist() for use in uses if use.signals and use.signals.weights is not None]
    seen = [use.signals.entropies for use in uses if use.signals]
    assert all(
        each is not None and each.dtype == np.float16 and set(each.tolist()) <= {0.0, 0.25} for each in seen
    )
    assert any(each is not None and 0.25 in each.tolist() for each in seen)
    assert found == [[0, 0, 1], pytest.approx([0.25])]
    assert imitated.uses() is None, "the next step begins anew"


def test_what_was_made_of_several_has_no_weights_of_its_own(run: Run) -> None:
    shown = [episode(0, (2,)), episode(1, (3,))]
    names = run.append(shown, step=0, phase="demonstrations")
    both = replace(shown[0], turns=(*shown[0].turns, *shown[1].turns), id="")
    changed = replace(shown[1], turns=(replace(shown[1].turns[0], prompt_ids=(1, 9)),), id=names[1])
    imitated = Imitated(run, is_on=True)
    learn(imitated, [Example(trajectory=both, sources=(names[0], names[1], "not recorded"))])
    uses = imitated.uses()
    assert uses is not None and [(use.episode, use.signals) for use in uses] == [
        (name, None) for name in names
    ]
    learn(imitated, [as_example(changed)])
    [use] = imitated.uses() or []
    assert use.signals is not None and use.signals.weights is not None and use.signals.weights.tolist() == [1]
    other = replace(shown[0], turns=episode(0, (7,)).turns, id=names[0])
    learn(imitated, [as_example(other)])
    [use] = imitated.uses() or []
    assert use.episode == names[0] and use.signals is None, "it has other tokens"


def test_both_sides_of_a_pair_are_used_with_weights_of_their_own(run: Run) -> None:
    shown = [episode(0, (2, 3)), episode(1, (4,)), episode(2, (5, 6, 7)), episode(3, (8,))]
    good, bad, worse, strange = (
        replace(t, id=name) for t, name in zip(shown, (*run.append(shown[:3], step=0), "gone"), strict=True)
    )
    pairs = [
        Pair(chosen=good, rejected=bad),
        Pair(chosen=good, rejected=worse),
        Pair(chosen=good, rejected=strange),
        Pair(chosen=worse, rejected=bad),
    ]
    imitated = Imitated(run, is_on=True)
    observe = imitated.watch(pairs)
    assert observe is not None
    samples = [sample for sample in pair_samples(pairs) if sample.pair != 3]  # a step draws some of them
    for own in ([s for s in samples if s.pair != 1], [s for s in samples if s.pair == 1]):
        batch = pack(own)
        observe(
            own,
            batch,
            Outputs(
                logprobs=torch.full((len(batch.token_ids),), -0.5),
                entropy=torch.full((len(batch.token_ids),), 0.25),
            ),
        )
    uses = imitated.uses()
    assert uses is not None and [(use.episode, use.rejected) for use in uses] == [
        (good.id, bad.id), (bad.id, ""), (good.id, worse.id), (worse.id, ""),
    ]  # fmt: skip
    told = [use.signals for use in uses if use.signals and use.signals.weights is not None]
    assert [len(each.weights) for each in told if each.weights is not None] == [2, 1, 2, 3]
    assert all(each.weights is not None and (each.weights > 0).all() for each in told)
    assert told[0].weights is not None and told[2].weights is not None
    assert told[0].weights.tolist() != told[2].weights.tolist(), "one episode, two pairs"


def test_runs_that_record_nothing_are_not_watched(run: Run) -> None:
    won = episode(0, (2,))
    quiet = Imitated(run, is_on=False)
    assert quiet.watch([as_example(won)]) is None and quiet.uses() is None
    assert Imitated(run, is_on=True).find("nothing") is None
