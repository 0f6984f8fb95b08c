"""DARE: batches, what is held out, what is measured, runs that are resumed, and what is wrong with pairs."""

import json
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.environments.protocol import Environment
from quintain.errors import ConfigError, DataError
from quintain.methods.find import find_method
from quintain.methods.toolrl import dare
from quintain.methods.toolrl.contrast import Contrast, inside, train_contrastively
from quintain.methods.toolrl.dare import Pairs
from quintain.models.embedder import Embedder
from quintain.retrieval.passages import Passage
from quintain.retrieval.retriever import Indexed
from quintain.runs.summary import summary
from quintain.store.run import Run
from quintain.worlds.guess.game import Guess
from quintain.worlds.shelf.game import Shelf

SMALL: dict[str, Any] = {
    "environment": "shelf?tools=40", "steps": 3, "eval_every": 2, "eval_episodes": 4, "batch_size": 16,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread() -> None:  # pyright: ignore[reportUnusedFunction]
    torch.set_num_threads(1)


def configured(**fields: Any) -> dare.Config:
    return dare.Config(**{**SMALL, **fields})


def contrast(**fields: Any) -> Contrast:
    config = configured(**fields)
    shelf = Shelf(tools=40, retriever="none")
    return Contrast(dare.method(config), shelf, seed=config.seed, rate=config.learning_rate)


def test_a_batch_holds_what_does_the_same_and_nothing_held_out() -> None:
    shelf = Shelf(tools=200, retriever="none")
    found = Contrast(dare.method(configured()), shelf, seed=0, rate=0.02)
    queries, chosen = found.draw(1)
    stock = shelf.stock
    assert len(queries) == len(chosen) == 16
    assert not set(chosen) & set(found.apart) and set(found.apart) | set(found.known) == set(range(200))
    for start in range(0, 16, 4):
        assert len({stock[number].does for number in chosen[start : start + 4]}) == 1
    assert [q.partition(":")[0] for q in queries] == [stock[n].does for n in chosen]
    assert found.draw(1) == (queries, chosen) != found.draw(2)
    assert contrast(hard=0).draw(1)[1] != chosen


def test_a_query_is_of_a_tool_that_nothing_was_learned_of() -> None:
    found = contrast()
    asked = found.questions()
    assert {number for _, number in asked} == set(found.apart) and len(asked) == 4 * len(found.apart)
    assert asked == contrast().questions()


def test_inside_a_group_the_first_of_its_documents_counts() -> None:
    assert inside([((9, 1, 0), {1}), ((9, 0, 1), {1}), ((9,), {1})], [(0, 1)] * 3) == pytest.approx(1 / 3)


def test_a_run_keeps_its_embedder_and_is_resumed_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured()
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    with Run.create(whole, recipe="dare", config=asdict(config)) as run:
        dare.method(config).train(run, config)
        rows = run.metrics()
        assert "play 'shelf?tools=40&retriever=" in summary(run) and "embedder/" in summary(run)
    assert {"eval/ndcg@10", "eval/bm25/mrr", "eval/untrained/recall@1", "eval/success"} <= rows[0].keys()
    assert rows[-1]["step"] == 3 and rows[1]["train/pairs"] == 16
    short = configured(steps=3)
    with Run.create(broken, recipe="dare", config=asdict(short)) as run, pytest.raises(OSError, match="gone"):
        monkeypatch.setattr(run, "checkpoint", _failing(run.checkpoint, at=3))
        dare.method(short).train(run, short)
    with Run.open(broken) as run:
        assert run.next_step == 3
        dare.method(short).train(run, short)
    texts = ["estimates centers: rows 40", "tests trends"]
    assert np.array_equal(Embedder.load(whole).embed(texts), Embedder.load(broken).embed(texts))


def _failing(checkpoint: Any, *, at: int) -> Any:
    def save(step: int, write: Any) -> Any:
        if step == at:
            raise OSError("gone")
        return checkpoint(step, write)

    return save


def test_pairs_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    rows = [
        {"query": f"find {k} {n}", "document": f"document number {k} of word{k}"}
        for k in range(12)
        for n in "ab"
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    found = Pairs.read(file)
    assert len(found.documents()) == 12
    assert found.query(0, Random(0)) in ("find 0 a", "find 0 b")
    assert {found.is_held_out(k) for k in range(12)} == {True, False}
    config = configured(environment=NO_ENVIRONMENT, pairs=str(file), hard=1)
    with Run.create(tmp_path / "run", recipe="dare", config=asdict(config)) as run:
        train_contrastively(dare.method(config), config, run)
        assert "eval/success" not in run.metrics()[-1] and run.metrics()[-1]["eval/mrr"] > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"query": "a"}', r"pair in pairs.jsonl line 1: got \{'query': 'a'\}; write"),
        ("[1]", r"pair in pairs.jsonl line 1"),
        ('{"query": ', "pairs.jsonl"),
    ],
)
def test_what_is_no_pair_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(text + "\n")
    with pytest.raises(DataError, match=said):
        Pairs.read(file)


def test_what_nothing_is_found_in_is_refused() -> None:
    config = dare.Config(environment="guess")
    with pytest.raises(ConfigError, match=r"environment: got Guess, in which nothing is found"):
        dare.method(config).corpus(Guess())
    with pytest.raises(ConfigError, match="give more documents, or a lower hard"):
        contrast(hard=39)


def test_a_ranker_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import quintain.methods.toolrl.contrast as loop
    from quintain.errors import MissingExtra

    def missing(*_: Any) -> Any:
        raise MissingExtra.for_package("bm25s", "search", "this")

    monkeypatch.setattr(loop, "BM25", missing)
    config = configured(environment="shelf?tools=40&retriever=none", ranks="bm25")
    said = "ranks: got 'bm25'; choose one of trained, untrained"
    with (
        Run.create(tmp_path / "run", recipe="dare", config=asdict(config)) as run,
        pytest.raises(ConfigError, match=said),
    ):
        dare.method(config).train(run, config)


def test_it_is_found_by_its_name() -> None:
    found = find_method("dare")
    assert found.config_class is dare.Config and isinstance(Shelf(tools=40), Environment)


def test_the_retrieval_index_takes_its_embedder(tmp_path: Path) -> None:
    Embedder(size=8, seed=1).save(tmp_path / "embedder")
    passages = [
        Passage(id=str(k), title="", text=text) for k, text in enumerate(("tests trends", "ranks peaks"))
    ]
    found = Indexed(passages, "dense", model=tmp_path).search("which trends", 1)
    assert [each.passage.id for each in found] == ["0"]
