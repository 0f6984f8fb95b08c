"""ATLaS: which turns are critical, that the others have no gradient, and where it is plain imitation."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.engines.chat_model import KEY, ChatModel

from quintain.data.pack import pack
from quintain.data.pipeline import Pipeline, as_example, example_samples
from quintain.environments.baselines import expert, play
from quintain.environments.catalog import find
from quintain.environments.protocol import begin
from quintain.errors import ConfigError, DataError, FailureRateError
from quintain.losses.imitation import imitation
from quintain.methods.imitation import atlas, sft
from quintain.methods.loops.offline import examples_of, make_samples
from quintain.rollout.verdicts import Verdicts
from quintain.types import Action, Example, Outputs, Trajectory

Make = Callable[..., Trajectory]


def acts(trajectory: Trajectory, *texts: str) -> Trajectory:
    turns = tuple(
        replace(t, action=Action(text=text)) for t, text in zip(trajectory.turns, texts, strict=True)
    )
    return replace(trajectory, turns=turns)


@pytest.fixture
def episode(trajectory: Make) -> Trajectory:
    made = trajectory([((1,), (10, 2)), ((3,), (11, 12, 2)), ((4,), (13, 2)), ((5,), (14, 2))], value=1.0)
    return acts(made, "look", "take mug", "go to desk", "put")


def by_words(trajectory: Trajectory) -> list[float]:
    texts = [turn.action.text for turn in trajectory.turns]
    return atlas.scores_of([None] * len(texts), texts, ("take", "put"), is_success=True)


def test_turns_that_are_not_critical_have_no_gradient_and_stay_as_context(episode: Trajectory) -> None:
    (made,) = atlas.pipeline(0.5, by_words).run([as_example(episode)]).examples
    (sample,) = example_samples([made])
    assert sample.token_ids.tolist() == [1, 10, 2, 3, 11, 12, 2, 4, 13, 2, 5, 14, 2]
    batch = pack([sample])
    logprobs = torch.full((13,), -1.5, requires_grad=True)
    loss = imitation()(Outputs(logprobs=logprobs, entropy=torch.zeros(13), values=None), batch).loss
    (slopes,) = torch.autograd.grad(loss, logprobs)
    # Five tokens count: the normaliser is what is kept, so that the scale is that of whole episodes.
    assert loss.item() == pytest.approx(1.5)
    wanted = [0.0, 0, 0, 0, -0.2, -0.2, -0.2, 0, 0, 0, 0, -0.2, -0.2]
    assert slopes.tolist() == pytest.approx(wanted)
    assert [x == 0.0 for x in slopes.tolist()] == [x == 0 for x in wanted]


def test_a_ratio_of_one_is_plain_imitation(trajectory: Make, shows: Any) -> None:
    shown = [
        trajectory([((1,), (10, 2)), ((3,), (11, 2))], value=value, task=str(value))
        for value in (1.0, 0.0, 0.5)
    ]
    one = atlas.method(atlas.Config(environment="house", ratio=1.0))
    other = sft.method(sft.Config(environment="house"))
    both = [make_samples(examples_of(m.data(shows(shown)))) for m in (one, other)]
    for mine, plain in zip(*both, strict=True):
        for a, b in zip(mine, plain, strict=True):
            assert np.array_equal(a.token_ids, b.token_ids) and np.array_equal(a.loss_weight, b.loss_weight)
    assert one.batch_size == other.batch_size and one.lr_schedule(7) == other.lr_schedule(7)
    assert one.update.aggregation == other.update.aggregation == "token_mean"


def test_an_episode_without_a_critical_turn_is_left_out(episode: Trajectory, shows: Any) -> None:
    idle = acts(episode, "look", "look", "go to desk", "look")
    made = atlas.pipeline(0.3, by_words).run([as_example(episode), as_example(idle)])
    assert [e.trajectory for e in made.examples] == [episode]
    assert [(p.stage, p.num_out) for p in made.funnel.passages] == [("solved", 2), ("critical", 1)]
    with pytest.raises(DataError, match="has no critical turn"):
        atlas.method(atlas.Config(environment="house")).data(shows([idle]))


def test_what_did_not_solve_its_task_is_not_looked_at(episode: Trajectory, trajectory: Make) -> None:
    failed = acts(trajectory([((1,), (2,))] * 4, value=0.0), "look", "take mug", "take cup", "put")
    asked: list[Trajectory] = []

    def judge(t: Trajectory) -> list[float]:
        asked.append(t)
        return by_words(t)

    atlas.pipeline(0.3, judge).run([as_example(failed), as_example(episode)])
    assert asked == [episode]


def test_the_highest_are_chosen_and_the_earlier_of_equals() -> None:
    assert atlas.most_critical([0, 2, 1, 2], 0.5) == [1, 3]
    assert atlas.most_critical([1, 1, 1, 1], 0.3) == [0, 1]
    assert atlas.most_critical([0, 0, 0, 1], 1.0) == [3]
    assert atlas.most_critical([0.0] * 10, 0.3) == []
    assert atlas.most_critical([1.0] * 10, 0.3) == [0, 1, 2]


def test_scores_say_what_moved_the_task() -> None:
    scores = atlas.scores_of(
        [0.0, 0.0, 0.5, None], ["look", "take mug", "go", "Put it"], ("put",), is_success=True
    )
    assert scores == [0.0, 2.0, 0.0, 1.0]
    assert atlas.scores_of([0.5], ["wait"], (), is_success=True) == [2.0]
    assert atlas.scores_of([0.5], ["wait"], (), is_success=False) == [0.0]


def test_the_rule_reads_progress_by_carrying_the_episode_out(train: Any) -> None:
    rows = train("atlas", environment="house?kind=put&things=1", ratio=0.3)
    assert rows[-1]["data/critical"] == rows[-1]["data/solved"] == 8
    house = find("house?kind=put")()
    begin(house, house.task("train", 0))
    assert atlas.ask_progress(house) == 0.0
    assert play(house, house.task("train", 0), expert).is_success and atlas.ask_progress(house) == 1.0
    assert atlas.ask_progress(find("guess")()) is None


def test_no_turn_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="trains no turn"):
        atlas.Config(environment="house", ratio=0.0).check()


def test_other_text_of_a_turn_without_weight_changes_the_loss(episode: Trajectory) -> None:
    from quintain.learning.learner import Forward
    from quintain.testing.pupil import new_pupil

    model = new_pupil(["guess"], seed=0, model="micro").model
    turns = list(episode.turns)
    turns[2] = replace(turns[2], completion=replace(turns[2].completion, token_ids=(20, 2)))
    losses: list[float] = []
    for each in (episode, replace(episode, turns=tuple(turns))):
        (made,) = atlas.pipeline(0.5, by_words).run([as_example(each)]).examples
        assert isinstance(made, Example)
        batch = pack(example_samples([made]))
        losses.append(float(imitation()(Forward(model).infer(batch), batch).loss))
    assert losses[0] != losses[1]


@pytest.mark.slow
def test_a_model_marks_turns_in_the_place_of_the_rule(
    train: Any, tmp_path: Path, episode: Trajectory
) -> None:
    scores = {0: "SCORE: 0", 1: "SCORE: 4", 2: "SCORE: 9", 3: "SCORE: 4"}
    model = ChatModel(lambda body: scores.get(json.loads(body["messages"][1]["content"])["turn"], "SCORE: 0"))
    (tmp_path / "key").write_text(KEY)
    address = f"{model.url}?model=m&key_file={tmp_path / 'key'}"
    try:
        config = atlas.Config(environment="house", judge=address)
        config.check()
        judge = atlas.judge_of(config)
        assert judge is not None
        verdicts = Verdicts(0.3)
        stages = atlas.by_model(judge, verdicts, 0.5)
        (chosen,) = Pipeline(*stages).run([as_example(episode)]).examples
        assert [float(np.max(weight)) for weight in chosen.weights or ()] == [0.0, 1.0, 1.0, 0.0]
        assert "how critical that turn is" in model.seen[0]["messages"][0]["content"]
        asked = len(model.seen)
        rows = train(
            "atlas", environment="house?kind=put&things=1", ratio=0.3, judge=address, demonstrations=4
        )
        assert rows[-1]["data/critical"] == rows[-1]["data/solved"] == 4 and len(model.seen) > asked
        other = acts(episode, "look", "take fork", "go to desk", "put")

        def say(body: dict[str, Any]) -> str:
            asked = body["messages"][1]["content"]
            return "No idea." if "fork" in asked and '"turn": 2' in asked else "SCORE: 3"

        model.say = say
        made = Pipeline(*stages).run([as_example(episode), as_example(other)])
        assert [each.trajectory for each in made.examples] == [episode]
        assert [(p.stage, p.num_out) for p in made.funnel.passages] == [("read", 1), ("critical", 1)]
        assert verdicts.measure() == {"verdicts/unread": pytest.approx(1 / 12)}
        model.say = lambda _: "No idea."
        with pytest.raises(
            FailureRateError, match=r"got 4 of 4 that cannot be used; .*does not end with SCORE: n"
        ):
            silent = acts(episode, "look", "take plate", "go to desk", "put")
            atlas.by_model(judge, Verdicts(0.3), 0.5)[0].apply([as_example(silent)])
    finally:
        model.listener.close()


def test_a_judge_that_is_no_endpoint_is_refused() -> None:
    with pytest.raises(ConfigError, match="judge: got 'expert'"):
        atlas.Config(environment="house", judge="expert").check()
