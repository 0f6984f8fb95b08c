"""SWEET-RL: a critic that is told what is hidden, a policy that is not, and turns that are ranked in between."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.methods.test_training import Coin, interrupting, resume, rows, train, weights

from quintain.errors import ConfigError
from quintain.methods.loops import rounds
from quintain.methods.preference import sweet_rl
from quintain.store.run import Run
from quintain.types import Action, Sample, StepResult

SECRET = f"{__file__}:Secret"


class Flip(Coin):
    """Half of it is luck."""

    def step(self, action: Action) -> StepResult:
        is_right = action.text == self.side
        return StepResult(
            observation="It fell.", reward=float(is_right), is_terminated=True, is_success=is_right
        )


class Secret(Flip):
    """It says to critics how it lies."""

    def privileged(self) -> str:
        return f"({self.side})"


FIELDS: dict[str, Any] = {
    "environment": SECRET, "agent": "scored", "demonstrations": 8, "expert_noise": 0.4, "tasks": 6, "group_size": 4,
    "states": 6, "candidates": 6, "num_epochs": 1, "num_minibatches": 1, "critic_epochs": 2, "steps": 2,
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Sample]]:
    """The streams that each policy was trained on."""
    found: dict[str, list[Sample]] = {"policy": [], "critic": []}
    learn = rounds.learn_in_epochs

    def kept(policies: Any, samples: list[Sample], *rest: Any, policy: str, **options: Any) -> Any:
        found[policy] += samples
        return learn(policies, samples, *rest, policy=policy, **options)

    monkeypatch.setattr(rounds, "learn_in_epochs", kept)
    return found


def test_the_critic_alone_is_told_and_ranks_from_the_second_round_on(
    tmp_path: Path, trained: dict[str, list[Sample]]
) -> None:
    folder = train("sweet_rl", tmp_path / "run", **FIELDS)
    first, second = rows(folder)[1:]
    assert first["data/pairs"] == first["sweet/states"] == 0 < first["data/2/pairs"]
    assert "preference/loss" not in first and first["critic/preference/accuracy"] >= 0
    assert second["data/pairs"] > 0 and second["sweet/spread"] > 0 and second["sweet/solved_tasks"] > 0
    assert second["preference/loss"] == pytest.approx(0.6931472, abs=1e-5), "the policy has not moved before"
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "start")
    told = {name: [tokenizer.decode(s.token_ids) for s in samples] for name, samples in trained.items()}
    assert told["policy"] and not any("final answer" in text or "(" in text for text in told["policy"])
    beginnings = tuple(f"In light that the final answer is: ({side})" for side in ("heads", "tails"))
    assert all(text.startswith(beginnings) for text in told["critic"])
    with Run.open(folder, writable=False) as run:
        ways = list(run.trajectories(step=2, phase="candidates"))
    assert ways and len(ways) % 6 == 0
    assert second["total/turns"] == first["total/turns"] + 6 * 4, "nobody answers what is only ranked"
    assert weights(folder / "start") != weights(folder / "model")


@pytest.mark.parametrize(("reference", "by"), [("previous", "policy"), ("first", "reference")])
def test_ways_on_are_ranked_against_who_took_them_or_the_start(
    reference: Any, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = sweet_rl.Config(reference=reference)
    assert sweet_rl.method(config).needs.renews_reference == (reference == "previous")
    asked: list[str] = []

    class Scores:
        def logprobs(self, _: Any, *, by: str) -> list[Any]:
            asked.append(by)
            return [[np.array([-1.0])]]

    monkeypatch.setattr(sweet_rl.Turns, "_tell_hidden", lambda self, way: way)
    worth = sweet_rl.Turns(config)._advantages(Scores(), [None])  # pyright: ignore[reportPrivateUsage, reportArgumentType] # stand-ins
    assert worth == [0.0] and asked == ["critic", by]


def test_a_critic_that_is_told_nothing_needs_no_world_that_tells(tmp_path: Path) -> None:
    plain = {**FIELDS, "environment": f"{__file__}:Flip"}
    folder = train("sweet_rl", tmp_path / "run", is_told=False, **plain)
    refused = [row.get("data/2/refused/contradicting", 0) for row in rows(folder)[1:]]
    assert sum(refused) > 0, "without c one task says the opposite of another"
    with pytest.raises(ConfigError, match="got one that does not say what it hides"):
        train("sweet_rl", tmp_path / "other", **plain)


@pytest.mark.slow
def test_a_broken_off_run_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stopped = train("sweet_rl", tmp_path / "whole", **FIELDS), tmp_path / "stopped"
    with monkeypatch.context() as patch:
        interrupting(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train("sweet_rl", stopped, **FIELDS)
    resume(stopped)
    assert weights(stopped / "model") == weights(whole / "model") and rows(stopped) == rows(whole)


def test_advantages_are_means_over_the_tokens_of_a_turn() -> None:
    own = [np.array([-1.0, -1.0]), np.array([-1.0]), np.array([])]
    before = [np.array([-1.1, -1.3]), np.array([-1.5]), np.array([])]
    assert sweet_rl.advantages(own, before) == pytest.approx([0.2, 0.5, 0.0])


def test_one_way_on_has_nothing_to_be_compared_with() -> None:
    with pytest.raises(ConfigError, match="group_size, candidates: got 4 and 1"):
        sweet_rl.Config(candidates=1).check()
    assert "preference/nll" not in str(sweet_rl.method(sweet_rl.Config(imitation_weight=0.0)).update)
