"""CodeAct: whose episodes are imitated, mistakes that stop code, how much is general, and what is told of budgets."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from tests.build import make_episode, make_turn
from tests.methods.test_training import config_of, rows, train

from quintain.agents.code_world import WRONG, InCode
from quintain.data.pack import pack
from quintain.data.pipeline import as_example, example_samples
from quintain.environments.baselines import play
from quintain.environments.protocol import Environment, advance, begin
from quintain.environments.tools import tool
from quintain.errors import ConfigError, DataError, UsageError
from quintain.losses.imitation import imitation
from quintain.methods.agents.code_act import (
    PAPER,
    TRACE,
    Config,
    break_code,
    find_failures,
    is_mended,
    make_author,
    mark_general,
    mix,
    pipeline,
)  # fmt: skip
from quintain.safety.isolation import find_fault
from quintain.safety.limits import Limits
from quintain.store.run import Run
from quintain.types import Action, Outputs, Sample, Score, Task, Trajectory, Turn, as_text
from quintain.worlds.calc.game import Calc
from quintain.worlds.twenty.game import Twenty

FAILED = Score(value=0.0, is_success=False)
needs_box = pytest.mark.skipif(bool(find_fault()), reason=find_fault())


def turn(shows: str = "", *, is_valid: bool = True, error: str | None = None) -> Turn:
    return make_turn(shows=shows, is_valid=is_valid, action=Action(text="a", error=error))


def choose(*episodes: Trajectory, turns: int = 5) -> list[int]:
    made = pipeline(turns).run([as_example(replace(e, index=k)) for k, e in enumerate(episodes)])
    return [example.trajectory.index for example in made.examples]


def test_who_errs_first_and_then_mends_it_is_imitated() -> None:
    traces = [
        make_episode(turn(), turn("ok")),  # never failed
        make_episode(turn(is_valid=False), turn("Error")),  # mended
        make_episode(turn(), turn(f"7\n{TRACE}\nZeroDivisionError: …")),  # valid calls, then an error: mended
        make_episode(turn(), turn(WRONG)),  # a wrong answer: mended
        make_episode(turn(error="no code"), turn("Error"), turn("ok")),  # mended
        make_episode(turn(), turn("ok", is_valid=False)),  # failed last
        make_episode(turn(is_valid=False), turn(), outcome=FAILED),  # not solved
        make_episode(*[turn(is_valid=False)] * 5, turn()),  # six turns
    ]
    assert choose(*traces) == [1, 2, 3, 4]
    assert choose(*traces, turns=6) == [1, 2, 3, 4, 7] and choose(traces[1], turns=1) == []
    assert find_failures(traces[2]) == [True, False] and not is_mended(traces[5])
    assert find_failures(make_episode()) == [] and not is_mended(make_episode())
    thought = replace(turn("think", is_valid=False), seat="agent/plan")
    assert choose(make_episode(thought, turn(), turn("ok"))) == [], "who thinks has done nothing"


def test_general_conversations_pass_and_have_their_share() -> None:
    chats = [mark_general(make_episode(turn(), outcome=FAILED)) for _ in range(30)]
    acting = make_episode(turn(is_valid=False), turn())
    assert choose(*chats, acting) == list(range(31))
    odds = np.array(mix([*map(as_example, chats), as_example(acting)], PAPER))
    assert odds[-1] == pytest.approx(7_139 / 78_385, abs=1e-4) and odds.sum() == pytest.approx(1)
    with pytest.raises(DataError, match="none among 30 examples"):
        mix([*map(as_example, chats)], PAPER)


def test_the_loss_of_what_is_packed_together_is_the_token_weighted_mean() -> None:
    def loss(*chosen: Sample) -> tuple[float, int]:
        batch = pack(chosen)
        trained = int((np.concatenate([s.loss_weight for s in chosen]) > 0).sum())
        logs = -torch.linspace(0.5, 2, len(batch.token_ids)) if len(chosen) == 1 else whole
        values = Outputs(logprobs=logs, entropy=logs, values=None)
        return float(imitation()(values, batch).loss), trained

    short, long = (make_episode(*[make_turn(range(3, 3 + n), prompt=(1, 5))] * 2) for n in (2, 5))
    first, second = example_samples([as_example(short), as_example(long)])
    parts = [-torch.linspace(0.5, 2, len(each.token_ids)) for each in (first, second)]
    whole = torch.cat(parts)
    (one, n), (two, m), (both, count) = loss(first), loss(second), loss(first, second)
    assert both == pytest.approx((n * one + m * two) / (n + m), abs=1e-6) and count == n + m and n != m


@needs_box
def test_mistakes_stop_code_before_anything_is_done() -> None:
    world = InCode(Calc(checks=0), limits=Limits(seconds=30.0))
    task = world.task("train", 0)
    begin(world, task)
    before = world.state_key().split(" ")[0]
    texts = {break_code("print(lookup(name='fig'))", Random(k)) for k in range(300)}
    assert len(texts) == 7 and all(text != "print(lookup(name='fig'))" for text in texts)
    for text in texts:
        result = advance(world, Action(text=text))
        assert not result.is_valid and "Error" in as_text(result.observation), text
    assert world.state_key().split(" ")[0] == before
    assert isinstance(world.inner, Calc) and not world.inner.snapshot()[1].num_calls
    rng, author = Random(3), make_author(0.5)
    episode = play(world, task, lambda inner, seen: author(inner, rng, seen))
    assert episode.is_success, "the next turn has it right"
    world.close()


@needs_box
def test_budgets_are_told_and_a_wrong_answer_before_the_last_is_taken_back() -> None:
    world = InCode(Calc(names=0, steps=1, checks=0), limits=Limits(seconds=30.0), turns=4, proposals=2)
    task = world.task("train", 0)
    begin(world, task)
    assert isinstance(world.inner, Calc)
    right = int(world.inner.solution()[-1].arguments["number"])
    assert world.max_turns == 4 and world.instructions().endswith("At most 4 turns and 2 answers.")
    begun, wrong = world.snapshot(), Action(text=f"print(answer({right + 1}))\nprint('on')")
    advance(world, wrong)
    world.restore(begun)
    first = advance(world, wrong)
    assert first.observation == f"{WRONG}\non\n(turns left: 3, answers left: 1)", (
        "answers are brought back, too"
    )
    assert (first.reward, first.is_over, first.is_success) == (0, False, None)
    saved = world.snapshot()
    last = advance(world, Action(text=f"answer({right + 1})\nprint('never')"))
    assert last.is_terminated and last.is_success is False and "never" not in as_text(last.observation)
    world.restore(saved)
    unread = advance(world, Action(error="there is no code"))
    assert unread.observation == "Error: there is no code\n(turns left: 2, answers left: 1)"
    assert advance(world, Action(text=f"answer({right})")).is_success
    world.close()


class Locked(Environment):
    """Say the number; a wrong one is noted."""

    def reset(self, task: Task) -> str:
        self.said = 0
        return "Say 3."

    @tool
    def answer(self, number: int) -> str:
        """Say a number."""
        self.said += 1
        return self.finish(f"said {self.said}", reward=float(number == 3) - 0.5)

    def snapshot(self) -> int:
        return self.said

    def restore(self, state: int) -> None:
        self.said = state


@needs_box
def test_what_is_taken_back_was_not_done_and_pays_nothing() -> None:
    world = InCode(Locked(), limits=Limits(seconds=30.0), proposals=3)
    begin(world, world.task("train", 0))
    first = advance(world, Action(text="print(answer(1), answer(2))\nanswer(3)"))
    assert first.observation == f"{WRONG} {WRONG}\nsaid 1" and first.reward == 0.5 and first.is_terminated
    world.close()


def test_what_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"agent: got tools, which writes no code; end it with code"):
        Config(agent="tools").check()
    with pytest.raises(ConfigError, match="demonstrations: got 0"):
        Config(demonstrations=0).check()
    with pytest.raises(
        ConfigError, match=r"error_rate: got 0.5 with the episodes of traces.jsonl, in which nobody"
    ):
        Config(demonstrations="traces.jsonl", error_rate=0.5).check()
    Config(demonstrations="traces.jsonl").check()
    Config(demonstrations=8, error_rate=0.5).check()

    class Fleeting(Twenty):
        snapshot = restore = None  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    with pytest.raises(UsageError, match=r"code: got proposals=2 in twenty, which cannot be brought back"):
        InCode(Fleeting(), proposals=2)


@needs_box
@pytest.mark.slow
def test_a_run_imitates_what_is_mended_among_conversations(tmp_path: Path) -> None:
    chats = tmp_path / "chats.jsonl"
    said = [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hello."}]
    chats.write_text("".join(f'{{"messages": {said}}}\n'.replace("'", '"') for _ in range(3)))
    sizes = {"environment": Config().environment, "agent": "code?turns=5&proposals=2&seconds=30"}
    folder = train("code_act", tmp_path / "run", demonstrations=16, corpus=str(chats), steps=1, **sizes)
    last = rows(folder)[-1]
    assert last["code_act/samples"] == pytest.approx(PAPER) and last["code_act/tokens"] > PAPER
    with Run.open(folder, writable=False) as run:
        shown = [t for t in run.trajectories() if "calc" in t.task.environment]
    assert 0 < sum(map(is_mended, shown)) < 16
    with pytest.raises(DataError, match=r"raise demonstrations or error_rate"):
        train("code_act", tmp_path / "none", demonstrations=4, error_rate=0.0, steps=1, **sizes)
    assert config_of("code_act").agent_fraction == PAPER
