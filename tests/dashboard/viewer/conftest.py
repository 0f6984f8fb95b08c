"""A run as a viewer meets it: two steps of two groups, an evaluation, a failure, a branch, an alarm, hostile text."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.build import make_episode, make_turn

from quintain.dashboard.viewer.viewed import Viewer
from quintain.store import Run
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Branch, Failure, Image, Score, Signals, Task, Text, ToolCall, Trajectory, Use
from quintain.types.episodes import Action

HOSTILE = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>\u202e&amp;"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cf500f0003860180"
    "5a34a27b0000000049454e44ae426082"
)
UNSOLVED = Score(value=0.0, is_success=False)
WORDS = ["go left now", "the door is red", "look", "take the key"]


def task(name: str, split: str = "train") -> Task:
    return Task(
        id=name, environment="e", seed=0, split="eval" if split == "eval" else "train", prompt=f"do {name}"
    )


def episode(
    name: str, index: int, outcome: Score | Failure, *, words: str, split: str = "train"
) -> Trajectory:
    """An episode of two turns, of 2 and 3 sampled tokens; the first calls a tool and is paid by a term."""
    call = ToolCall(name="look", arguments={"at": words})
    first = make_turn(
        (5, 6),
        prompt=(1, 2, 3),
        shows=f"you see {words}",
        action=Action(text=f"look {words}", tool_calls=(call,)),
        reward_terms={"found": 0.25},
        starts_segment=True,
    )
    second = make_turn((7, 8, 9), prompt=(4,), logprob=-1.0, shows=f"then {words}", text=f"done {words}")
    group = f"0:{name}"
    return make_episode(first, second, task=task(name, split), outcome=outcome, group=group, index=index)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with the runs ``one`` and ``two``."""
    for name, solved in (("one", 1), ("two", 2)):
        write_run(tmp_path / "runs" / name, solved)
    return tmp_path / "runs"


def write_run(folder: Path, solved: int) -> None:
    tokenizer = train_tokenizer(WORDS, 300)
    with Run.create(
        folder,
        recipe="grpo",
        config={
            "steps": 4,
            "tasks": 1,
            "group_size": 2,
            "clip_low": 0.2,
            "clip_high": 0.2,
            "note": HOSTILE,
            "environment": "guess",
        },
    ) as run:
        tokenizer.save_pretrained(str(folder / "tokenizer"))
        evaluate(run, 0, solved=0)
        run.commit(
            0,
            {
                "eval/success": 0.0,
                "eval/low": 0.0,
                "eval/high": 0.4,
                "time/seconds": 1.0,
                "total/tokens": 0.0,
            },
        )
        for step in (1, 2):
            pair = [
                episode("t/train/1", 0, Score(value=1.0, is_success=True), words=f"red door {step}"),
                episode("t/train/1", 1, UNSOLVED, words="blue window"),
            ]
            broken = replace(
                episode(
                    "t/train/2",
                    0,
                    Failure(owner="environment", kind="timeout", message=HOSTILE),
                    words=HOSTILE,
                ),
                turns=pair[0].turns[:1],
            )
            shown = make_turn(
                (5,),
                prompt=(1,),
                shows=(Text(text=HOSTILE), Image(data=PNG, media_type="image/png")),
                text=HOSTILE,
            )
            odd = make_episode(shown, task=task(f"t/train/{HOSTILE}"), outcome=UNSOLVED, group="0:odd")
            ids = run.append([*pair, broken, odd], step=step)
            branch = replace(
                pair[1],
                parent=Branch(episode=ids[0], turn=1),
                group="1:branch",
                turns=(pair[0].turns[0], pair[1].turns[1]),
            )
            run.append([branch], step=step)
            signals = Signals(
                weights=np.array([0.1, 0.1, 0.1, 0.0, 0.1], np.float32),
                advantages=np.array([1.0, 1.0, -1.0, -1.0, -1.0], np.float32),
                logprobs=np.array([-0.5, -0.1, -1.0, 0.0, -2.0], np.float32),
            )
            uses = [
                Use(episode=ids[0], signals=signals, rejected=ids[1] if step == 2 else ""),
                Use(episode=ids[1]),
            ]
            row = {
                "train/success": 0.5,
                "train/loss": 0.1 * step,
                "time/step": 2.0,
                "time/update": 0.5,
                "time/seconds": 2.0 * step,
                "total/tokens": 20.0 * step,
                "machine/engine_idle": 0.25,
                "machine/learner_idle": 0.75,
                "machine/environments_idle": 0.9,
            }
            if step == 2:
                evaluate(run, 2, solved=solved)
                row |= {"eval/success": solved / 4, "eval/low": 0.1, "eval/high": 0.9}
            run.commit(step, row, uses=uses)
        run.event("alarm", f"entropy fell: {HOSTILE}", step=2, name="entropy", subject=HOSTILE)


def evaluate(run: Run, step: int, *, solved: int) -> None:
    played = [
        episode(
            f"t/eval/{number}",
            0,
            Score(value=1.0, is_success=True) if number < solved else UNSOLVED,
            words="held out",
            split="eval",
        )
        for number in range(4)
    ]
    run.append(played, step=step, phase="eval")


@pytest.fixture
def viewer(runs: Path) -> Iterator[Viewer]:
    found = Viewer(runs, cache=None)
    yield found
    found.close()


@pytest.fixture
def read_all() -> Callable[[Viewer, str], None]:
    """Reads the words of all episodes of a run."""

    def read(viewer: Viewer, name: str) -> None:
        while viewer.get(name).read_on():
            pass

    return read
