"""FireAct: whose episodes are imitated, that what is read carries no loss, and where it is plain imitation."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quintain.data.pack import pack
from quintain.data.pipeline import as_example, example_samples
from quintain.errors import ConfigError, DataError
from quintain.losses.imitation import imitation
from quintain.methods.imitation import fireact, sft
from quintain.methods.loops import offline
from quintain.methods.loops.offline import examples_of, make_samples
from quintain.models.load import load_tokenizer
from quintain.rewards.answers import exact_match
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.types import Outputs, Sample, Trajectory

Make = Callable[..., Trajectory]
TOLD = re.compile("reward|score|return|success|solved|correct|wrong", re.IGNORECASE)
"""Words that would say how an episode is rated."""


def test_labels_of_what_was_read_change_nothing(trajectory: Make) -> None:
    one = trajectory([((1, 5), (10, 2)), ((3, 6), (11, 2))])
    (sample,) = example_samples(fireact.pipeline(99).run([as_example(one)]).examples)
    logs = torch.linspace(-2, -1, 8)
    other = torch.where(torch.tensor(sample.loss_weight) > 0, logs, torch.rand(8) - 5)
    everywhere = pack([replace(sample, loss_weight=np.ones(8, np.float32))])

    def loss(values: torch.Tensor, batch: Any) -> float:
        return float(imitation()(Outputs(logprobs=values, entropy=values, values=None), batch).loss)

    assert loss(logs, pack([sample])) == loss(other, pack([sample]))
    assert loss(logs, everywhere) != loss(other, everywhere)


def test_a_long_episode_is_left_out_whole_and_counted(trajectory: Make) -> None:
    short, long = trajectory([((1,), (2, 3))]), trajectory([((1,), (2, 3)), ((4,), (5, 6))])
    made = fireact.pipeline(3).run([as_example(short), as_example(long)])
    assert [e.trajectory for e in made.examples] == [short]
    assert [(p.stage, p.num_in, p.num_out) for p in made.funnel.passages] == [
        ("right", 2, 2),
        ("within", 2, 1),
    ]


def test_one_way_that_is_always_right_is_plain_imitation(trajectory: Make, shows: Any) -> None:
    shown = [trajectory([((1,), (10, 2)), ((3,), (11, 2))]), trajectory([((1,), (12, 2))], value=0.0)]
    collector = shows(shown)
    one = fireact.method(fireact.Config(strategies=("expert",)))
    other = sft.method(sft.Config(environment="stream"))
    both = [make_samples(examples_of(m.data(collector))) for m in (one, other)]
    assert [[s.token_ids.tolist() for s in part] for part in both[0]] == [
        [s.token_ids.tolist() for s in part] for part in both[1]
    ]
    assert collector.teachers == [(), ()]


def test_every_way_of_the_environment_has_a_teacher(trajectory: Make, shows: Any) -> None:
    collector = shows([trajectory([((1,), (10, 2))])])
    fireact.method(fireact.Config()).data(collector)
    assert [len(teachers) for teachers in collector.teachers] == [2]
    with pytest.raises(DataError, match="none that it knows"):
        fireact.method(fireact.Config(environment="guess")).data(collector)
    with pytest.raises(DataError, match="did not solve its task"):
        fireact.method(fireact.Config()).data(shows([trajectory([((1,), (2,))], value=0.0)]))


def test_a_way_that_is_not_known_is_refused_before_anything_is_played() -> None:
    with pytest.raises(ConfigError, match=r"^ways: got 'dircet' in stream; did you mean 'direct'\?$"):
        fireact.method(fireact.Config(strategies=("expert", "dircet")))
    with pytest.raises(ConfigError, match=r"^ways: got 'nope' in stream; choose from direct, expert, \w+$"):
        fireact.method(fireact.Config(strategies=("nope",)))
    with pytest.raises(ConfigError, match="ways: got 'direct' in guess; choose from expert"):
        fireact.method(fireact.Config(environment="guess", strategies=("direct",)))
    fireact.method(fireact.Config(strategies=("expert", "direct")))


def test_conversations_of_others_are_filtered_alike(trajectory: Make, shows: Any) -> None:
    collector = shows([trajectory([((1,), (10, 2))]), trajectory([((1,), (2,))], value=0.0)])
    made = fireact.method(fireact.Config(demonstrations="chats.jsonl")).data(collector)
    assert len(examples_of(made)) == 1 and collector.teachers == [()]


def test_two_teachers_show_the_same_tasks_and_nothing_says_the_reward(
    train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[Sample] = []

    def watched(*given: Any, **fields: Any) -> list[list[Sample]]:
        found = make_samples(*given, **fields)
        learned.extend(sample for streams in found for sample in streams)
        return found

    monkeypatch.setattr(offline, "make_samples", watched)
    rows = train("fireact", environment="stream?pages=2&facts=1&closed_book=0.5", demonstrations=12)
    assert rows[-1]["data/in"] == 24 and 12 < rows[-1]["data/right"] < 24
    folder = tmp_path / "fireact"
    with Run.open(folder, writable=False) as run:
        shown = list(run.trajectories(step=0, phase="demonstrations"))
    assert sorted(Counter(t.task.id for t in shown).values()) == [2] * 12
    chat = Chat(load_tokenizer(folder / "start"))

    def text(sample: Sample, of: Sequence[bool]) -> str:
        return chat.text(sample.token_ids[list(of)].tolist())

    assert len(learned) == rows[-1]["data/kept"]
    for sample in learned:
        everything = text(sample, [True] * len(sample.token_ids))
        assert re.search(r"\d+ pages\. ", everything) and not TOLD.search(everything), everything
        said = text(sample, (sample.loss_weight > 0).tolist())
        assert re.fullmatch(r"(read(<\|end\|>)?)*answer \d+(<\|end\|>)?", said), said


def test_exact_match_knows_articles_and_marks() -> None:
    assert exact_match("The Eiffel Tower.", ["eiffel tower"]) == 1
    assert exact_match("Eiffel", ["eiffel tower"]) == 0
