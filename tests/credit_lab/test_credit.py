"""The credit laboratory: what fits is measured, what does not is said, and a batch without news is refused."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from quintain.credit.decomposition import Contributions
from quintain.credit_lab.credit import (
    FLOOR,
    Material,
    Report,
    assign,
    deal,
    fit_critics,
    fit_ideas,
    refuse_batch,
    run_lab,
)
from quintain.credit_lab.gradient import GradientLab
from quintain.credit_lab.material import read_batch
from quintain.credit_lab.report import COLUMNS, headline, idea_cells, loss_cells, notes, write_lab
from quintain.errors import DataError, UsageError
from quintain.methods.rl.parts.choices import IDEAS, LOSSES
from quintain.store.run import Run
from quintain.types import Group, Score, flatten_scored


@pytest.fixture(scope="module")
def material(lab_run: Path) -> Material:
    return read_batch(lab_run)


@pytest.fixture(scope="module")
def report(material: Material) -> Report:
    return run_lab(material, ideas=["group", "outcome", "return", "gae", "gigpo", "spa_rl", "vine"], parts=4)


@pytest.mark.slow
def test_every_idea_that_fits_has_a_row_and_every_loss_a_column(report: Report) -> None:
    assert {row.name for row in report.ideas} == {
        "group",
        FLOOR,
        "outcome",
        "return",
        "gae",
        "gigpo",
        "spa_rl",
    }
    assert [row.cosine for row in report.ideas] == sorted((r.cosine for r in report.ideas), reverse=True)
    for row in report.ideas:
        assert -1 <= row.cosine <= 1 and row.low <= row.cosine <= row.high
        assert 0 < row.effective <= 1 and row.norm > 0
    assert report.row("group").gain == 0.0 and report.row("group").norm == pytest.approx(1.0)
    assert set(report.losses) == {row.name for row in report.ideas}
    assert all(set(cosines) == set(LOSSES) for cosines in report.losses.values())
    assert report.gap < 1e-3 and 0 <= report.outside <= 0.1
    assert report.same == {"return": "outcome"}, "the only reward of an episode is its last"
    assert report.losses["return"] == report.losses["outcome"]
    assert replace(report.row("return"), name="outcome", seconds=0) == replace(
        report.row("outcome"), seconds=0
    )
    assert report.left_out == {
        "vine": "continues episodes from every state, which a recorded batch does not hold"
    }


@pytest.mark.slow
def test_losses_can_be_left_out_and_the_floor_is_another_draw(material: Material, report: Report) -> None:
    again = run_lab(material, ideas=["outcome"], losses=[], parts=4, seed=1)
    assert not again.losses and again.row("outcome").cosine == pytest.approx(
        report.row("outcome").cosine, abs=1e-5
    )
    assert again.row(FLOOR).cosine != report.row(FLOOR).cosine


def test_unknown_names_and_too_few_parts_are_refused(material: Material) -> None:
    with pytest.raises(UsageError, match="ideas: got 'gruop'; did you mean 'group'"):
        run_lab(material, ideas=["gruop"])
    with pytest.raises(UsageError, match="losses: got 'clip'"):
        run_lab(material, losses=["clip"])
    with pytest.raises(UsageError, match="parts: got 1"):
        run_lab(material, parts=1)


def test_weights_that_did_not_sample_are_refused(material: Material) -> None:
    with pytest.raises(DataError, match="did not sample the episodes"):
        run_lab(replace(material, temperature=0.3), ideas=["group"], losses=[])


def judged(groups: list[Group], is_success: bool) -> list[Group]:
    score = Score(value=float(is_success), is_success=is_success)
    return [replace(g, trajectories=tuple(replace(t, outcome=score) for t in g.trajectories)) for g in groups]


def test_batches_that_say_nothing_are_refused(material: Material) -> None:
    groups = list(material.groups)
    with pytest.raises(DataError, match="got none that may be trained on"):
        refuse_batch([], "a run")
    with pytest.raises(DataError, match="groups of a run: got 1"):
        refuse_batch(groups[:1], "a run")
    with pytest.raises(DataError, match=r"none of them solved; .*easier tasks"):
        refuse_batch(judged(groups, False), "a run")
    with pytest.raises(DataError, match=r"all of them solved; .*harder tasks"):
        refuse_batch(judged(groups, True), "a run")


def test_what_does_not_fit_is_said_in_a_line(material: Material) -> None:
    alone = [replace(group, trajectories=group.trajectories[:1]) for group in material.groups]
    bare = [
        replace(
            group,
            trajectories=tuple(
                replace(t, turns=tuple(replace(turn, state_key=None) for turn in t.turns))
                for t in group.trajectories
            ),
        )
        for group in alone
    ]
    fitting, left_out = fit_ideas(bare, list(IDEAS))
    assert left_out["group"] == "compares episodes of one task, and every group has one"
    assert "without state keys" in fit_ideas(material.groups[:0] or two(bare), ["gigpo"])[1]["gigpo"]
    assert "rewards before the last turn" in fit_ideas(material.groups, ["process"])[1]["process"]
    assert {"outcome", "return", "others", "gae", "spa_rl"} <= set(fitting)


def two(groups: list[Group]) -> list[Group]:
    return [replace(group, trajectories=group.trajectories * 2) for group in groups]


def test_what_is_learned_for_a_part_is_learned_from_the_others(
    material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    folds = deal(list(material.groups), 3)
    others = [[g for n, fold in enumerate(folds) if n != place for g in fold] for place in range(3)]
    seen: list[list[Group]] = []
    lab = GradientLab(material.model)
    monkeypatch.setattr(lab, "fit_critic", lambda groups: seen.append(list(groups)))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    fit_critics(lab, folds)
    assert seen == others
    seen.clear()
    learn = Contributions.update

    def update(self: Contributions, groups: Sequence[Group]) -> None:
        seen.append(list(groups))
        learn(self, groups)

    monkeypatch.setattr(Contributions, "update", update)
    for place in range(3):
        assign("spa_rl", folds, place, None, 0)
    assert seen == others


def test_groups_are_dealt_in_turn(material: Material) -> None:
    folds = deal(list(material.groups), 3)
    assert [len(fold) for fold in folds] == [3, 3, 2] and len(deal(list(material.groups), 99)) == 8


@pytest.mark.slow
def test_the_report_is_written_as_a_file_a_picture_and_tables(report: Report, tmp_path: Path) -> None:
    file, picture = write_lab(report, tmp_path / "out")
    assert json.loads(file.read_text()) == json.loads(json.dumps(asdict(report)))
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(idea_cells(report)) == len(report.ideas) and len(idea_cells(report)[0]) == len(COLUMNS)
    columns, rows = loss_cells(report)
    assert columns == ["credit", *LOSSES] and all(len(row) == len(columns) for row in rows)
    assert "32 episodes in 8 groups" in headline(report)
    bare = replace(report, losses={})
    assert loss_cells(bare) == (["credit"], []) and write_lab(bare, tmp_path)[1].stat().st_size > 1000


def test_notes_say_whether_anything_was_told_apart(report: Report) -> None:
    def last(gain: float, below: float) -> str:
        rows = [
            replace(row, gain=-below if row.name == FLOOR else 0.0, gain_error=0.1) for row in report.ideas
        ]
        best = replace(report.row("outcome"), gain=gain, gain_error=0.05)
        rest = [row for row in rows if row.name != "outcome"]
        return notes(replace(report, ideas=(best, *rest)))[-1]

    assert last(0.3, 0.5) == "here outcome points +0.300 nearer to success than group"
    assert last(0.05, 0.5) == "no idea is told from group by more than two standard errors"
    assert last(0.05, 0.1).startswith("group is not told from the floor")


def test_a_run_is_read_at_the_step_whose_weights_are_kept(lab_run: Path, material: Material) -> None:
    assert material.source == "step 1 of batch" and material.recipe == "grpo"
    assert len(flatten_scored(material.groups)) == 32
    assert all(turn.state_key for t in flatten_scored(material.groups) for turn in t.turns)
    with pytest.raises(DataError, match=r"got 7, whose weights are not kept; those of 1 are"):
        read_batch(lab_run, step=7)


def test_a_run_without_episodes_is_refused(lab_run: Path, tmp_path: Path) -> None:
    with Run.open(lab_run, writable=False) as run:
        config = run.config
    with Run.create(tmp_path / "empty", recipe="grpo", config=config):
        pass
    with pytest.raises(DataError, match="got none of a step whose weights are kept"):
        read_batch(tmp_path / "empty")
