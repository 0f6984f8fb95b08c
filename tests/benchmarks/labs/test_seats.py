"""Scripted seats err as often as they say, and the same question has the same answer."""

import random
from math import exp

import numpy as np
import pytest

from quintain.benchmarks.labs.seats import Labeller, Solver, executor, last_line, scripted_mind
from quintain.benchmarks.labs.tables import new_table, s3
from quintain.engines.protocol import Request, Sampling
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, begin
from quintain.errors import UsageError
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Completion


def share(labeller: Labeller, first: float, second: float, label: str, num: int = 2000) -> float:
    return sum(labeller.label(first, second, n) == label for n in range(num)) / num


def test_labels_follow_bradley_and_terry_with_flips_ties_and_abstentions() -> None:
    assert share(Labeller(seed=0), 1.0, 0.0, "first", 50) == 1.0
    assert share(Labeller(seed=0), 0.0, 1.0, "second", 50) == 1.0
    assert share(Labeller(seed=0), 1.0, 1.0, "tie", 50) == 1.0
    likely = 1 / (1 + exp(-2.0))
    assert share(Labeller(seed=0, temperature=0.5), 1.0, 0.0, "first") == pytest.approx(likely, abs=0.03)
    assert share(Labeller(seed=0, flips=0.1), 1.0, 0.0, "second") == pytest.approx(0.1, abs=0.02)
    assert share(Labeller(seed=0, abstains=0.2), 1.0, 0.0, "none") == pytest.approx(0.2, abs=0.03)
    assert share(Labeller(seed=0, band=0.5), 1.0, 0.7, "tie", 50) == 1.0
    noisy = Labeller(seed=0, temperature=1.0)
    assert [noisy.label(1, 0, n) for n in range(20)] == [noisy.label(1, 0, n) for n in range(20)]
    for wrong in ({"flips": 2.0}, {"temperature": -1.0}, {"abstains": -0.1}):
        with pytest.raises(UsageError):
            Labeller(seed=0, **wrong)


def test_episodes_are_compared_by_a_score() -> None:
    group = new_table(s3(0), 0).sample(size=2, seed=0, tasks=[0])[0]
    first, second = group.trajectories
    labeller = Labeller(seed=0)
    assert labeller.compare(first, second, lambda t: -float(t.index)) == "first"
    assert labeller.compare(second, first, lambda t: -float(t.index)) == "second"


def replies(errs: float) -> list[str]:
    tokenizer = train_tokenizer(["red or blue ? red blue green"] * 4)
    engine = scripted_mind(
        tokenizer,
        lambda text: "red" if "blue" in text else "green",
        errs=errs,
        wrong=lambda *_: "blue",
        seed=1,
    )
    said: list[str] = []
    for n, text in enumerate(["red or blue ?", "red or red ?"] + ["blue " * k for k in range(1, 30)]):
        engine.submit(
            Request(
                session=str(n),
                prompt_ids=tuple(tokenizer.encode(text)),
                seed=n,
                sampling=Sampling(max_tokens=8),
            )
        )
        (reply,) = engine.advance()
        assert isinstance(reply.result, Completion)
        said.append(str(tokenizer.decode(list(reply.result.token_ids), skip_special_tokens=True)).strip())
    return said


def test_a_mind_reads_text_and_errs_as_often_as_it_says() -> None:
    assert replies(0.0)[:2] == ["red", "green"] and replies(0.0).count("blue") == 0
    assert 3 < replies(0.3).count("blue") < 18 and replies(0.3) == replies(0.3)
    with pytest.raises(UsageError, match="say what it says then"):
        scripted_mind(train_tokenizer(["a b"] * 4), str, errs=0.5)


def test_an_executor_follows_hints_or_is_deaf() -> None:
    environment = find("sokoban?size=3&walls=0")()
    begin(environment, environment.task("train", 0))

    def do(_: Environment, hint: str) -> Action | None:
        return Action(text=hint) if hint in ("north", "south") else None

    rng = random.Random(0)
    seen = ["look", "a line\nsouth"]
    assert [executor(do, last_line)(environment, rng, seen).text for _ in range(3)] == ["south"] * 3
    deaf = [executor(do, last_line, follows=0.0)(environment, rng, seen).text for _ in range(40)]
    assert len(set(deaf)) > 1 and deaf.count("south") < 40
    lost = executor(do, lambda _: "fly")(environment, rng, seen).text
    assert lost in ("north", "south", "east", "west") and last_line([]) == ""


def test_a_solver_errs_more_on_large_problems_and_splitting_pays_when_it_does() -> None:
    solver = Solver(seed=0, slope=0.1, join=0.95)
    found = np.mean([solver.solve(8, n) for n in range(2000)])
    assert found == pytest.approx(exp(-0.7), abs=0.03)
    assert not solver.merge([True, False], 0)
    assert np.mean([solver.merge([True, True], n) for n in range(1000)]) == pytest.approx(0.95, abs=0.03)
    scores = [[solver.score(right, n) for n in range(500)] for right in (True, False)]
    assert np.mean(scores[0]) - np.mean(scores[1]) == pytest.approx(1.0, abs=0.2)
    steep = Solver(seed=0, slope=0.4, join=0.9)
    assert steep.best(8, 1) == pytest.approx(exp(-2.8))
    assert steep.best(8, 3) == pytest.approx(0.9 * exp(-1.2) ** 2), "two halves and putting together"
    assert steep.best(8, 0) == 0.0 and steep.best(1, 1) == 1.0
    flat = Solver(seed=0, slope=0.0)
    assert flat.best(8, 12) == 1.0, "splitting costs where size costs nothing"
