"""A memory that is trained reads past the model's context: python speed/proof_horizon.py [--seeds 4] [--picture FILE]

SmolLM2-135M has 2,048 positions. For each seed one supervised start on short books (`stream`, two pages), and from it
three arms of as many updates: MemAgent, the same with the rewards of each group dealt out anew, and more imitation of
the demonstrations of the start. All four read held-out books of 2,000 tokens, which fit the context, page by page and
greedily; start and MemAgent those of 16,000, MemAgent those of 64,000. Beside it the same weights read what is left of
these books where they are cut to the context (`horizon.CutText`), and answer by the notes of another book about their
own key.

Decided on before the run, over the seeds: 1. on books of 2,000 tokens MemAgent ends higher than with rewards dealt out
anew, and 2. than after as much more imitation (Student's t of paired differences, one-sided p < .01 each); 3. on books
of 16,000 tokens it ends higher than where they are cut (McNemar over all books, one-sided p < .01); 4. no prompt is
longer at 64,000 tokens than at 2,000 but for the digits of page numbers (8 tokens), and the largest resident set of
two books at once grows by less than a tenth; 5. by the notes of another book fewer than a quarter are answered.

This is the second version, after one seed of the first (docs/real-model-horizon.md): its start of 16 demonstrations of
three pages wrote nothing down, and eight steps of two books each taught it to write what any page says.

Each training and each evaluation is a process of one thread that is not run again once it is done. `make
proof-horizon` runs all; `--only 0` one seed, `--table` nothing: what is there is told.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from proofs import CLI, Difference, run_child, train_once
from scipy.stats import binomtest

from quintain.environments.catalog import find
from quintain.environments.protocol import begin
from quintain.store import Run
from quintain.types import Score, Task

HERE = Path(__file__).parent
AGENT = "chunks?max_tokens=12+text?max_tokens=8"
WORLD = "facts=1&filler=30&closed_book=0&cost=0"
DEMONSTRATED, TRAINED = f"stream?pages=2&{WORLD}", f"stream?pages=3&{WORLD}"
"""what is imitated, and what is trained on by reward"""
PAGES = {"2k": 12, "16k": 100, "64k": 400}
"""pages of 160 tokens of the books that are read; twelve fit the context with what is said around them"""
DEMONSTRATIONS, BATCH, STEPS, TASKS, GROUP = 24, 4, 8, 4, 4
APART = 20_000
"""Tasks between the first ones of two seeds."""
ORDER = ("memagent", "dealt", "imitation", "start")
"""Arms in the order in which they are worked at."""
NUM = {"2k": 24, "16k": 6, "64k": 2, "cut16k": 24, "cut64k": 12, "two2k": 2, "two16k": 2}
"""books of each reading; those called two say what memory is taken where as many are read at once as at 64k"""
LAYERS, HEADS, WIDTH, BYTES = 30, 3, 64, 2
"""of the keys and values of SmolLM2-135M in bf16"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What came of an evaluation: ``Reading(solved={"stream/eval/0": True}, prompt=402, resident=1.4)``."""

    solved: dict[str, bool]
    prompt: int
    """tokens of the longest prompt with what was said to it"""
    read: float
    """tokens that were read for a book"""
    resident: float
    """largest resident set of the process, GiB; 0 where it was broken off between"""

    @property
    def success(self) -> float:
        """Share of the books whose question was answered rightly."""
        return fmean(self.solved.values())


def environment_of(kind: str) -> str:
    """Return the books that the reading `kind` is of."""
    length = kind.removeprefix("cut").removeprefix("two")
    world = f"pages={PAGES[length]}&{WORLD}"
    return (
        f"{HERE / 'horizon.py'}:CutText?kept={PAGES['2k']}&{world}"
        if kind != kind.removeprefix("cut")
        else f"stream?{world}"
    )


def readings_of(arm: str, seed: int) -> list[str]:
    """Return the readings of `arm`."""
    if arm != "memagent":
        return ["2k", "16k"] if arm == "start" else ["2k"]
    if seed == 0:
        return ["2k", "two16k", "cut16k", "64k", "two2k", "16k", "cut64k"]
    return ["2k", "16k", "cut16k", "64k", "cut64k"]


def command_of(runs: Path, arm: str, seed: int) -> list[str]:
    """Return the command that trains `arm`."""
    world = DEMONSTRATED if arm in ("start", "imitation") else TRAINED
    common = [
        "--environment", world, "--agent", AGENT, "--precision", "bf16", "--seed", str(seed), "--eval-start", "false",
        "--eval-every", "1000", "--eval-episodes", "4", "--tokens-per-microbatch", "4096", "--task-offset",
    ]  # fmt: skip
    demonstrated = str(APART * (seed + 1))
    begun = str(runs / f"horizon-start-{seed}" / "model")
    rate = ["--learning-rate", "2e-5", "--steps", str(STEPS), "--model", begun]
    if arm == "start":
        steps = str(2 * DEMONSTRATIONS // BATCH)
        return [
            "train", "sft", *common, demonstrated, "--demonstrations", str(DEMONSTRATIONS), "--batch-size", str(BATCH),
            "--held-out", "0", "--steps", steps, "--learning-rate", "1e-4", "--model", "smollm2",
        ]  # fmt: skip
    if arm == "imitation":
        return [
            "train", "sft", *common, demonstrated, "--demonstrations", str(DEMONSTRATIONS), "--batch-size",
            str(TASKS * GROUP), "--held-out", "0", *rate,
        ]  # fmt: skip
    return [
        "train", str(HERE / "horizon.py"), *common, str(APART * (seed + 1) + 1000), "--demonstrations", "0", "--tasks",
        str(TASKS), "--group-size", str(GROUP), "--dealt-out", str(arm == "dealt").lower(), *rate,
    ]  # fmt: skip


def train(runs: Path, arm: str, seed: int) -> bool:
    """Train `arm` unless that is done; return whether its model is there."""
    folder = runs / f"horizon-{arm}-{seed}"
    return train_once(folder, [*command_of(runs, arm, seed), "--runs", str(runs), "--run", folder.name])


def read_books(runs: Path, arm: str, seed: int, kind: str) -> None:
    """Let `arm` read the books of `kind` unless that is done, and write what came of it."""
    name = f"horizon-{arm}-{seed}-{kind}"
    if (runs / f"{name}.json").is_file():
        return
    was_begun = (runs / name).is_dir()
    status, resident = run_child(
        [*CLI, "eval", f"horizon-{arm}-{seed}", "--runs", str(runs), "--environment", environment_of(kind),
         "--episodes", str(NUM[kind]), "--temperature", "0", "--trust-run", "--out", str(runs / name)],
        runs / f"{name}.log",
    )  # fmt: skip
    if status:
        print(f"{name}: exit status {status}, see {runs / name}.log", flush=True)
        return
    with Run.open(runs / name, writable=False) as run:
        episodes = list(run.trajectories())
    found = Reading(
        solved={t.task.id: t.is_success for t in episodes},
        prompt=max(len(u.prompt_ids) + len(u.completion.token_ids) for t in episodes for u in t.turns),
        read=fmean(sum(len(u.prompt_ids) for u in t.turns) for t in episodes),
        resident=0.0 if was_begun else resident,
    )
    (runs / f"{name}.json").write_text(json.dumps(asdict(found)))
    print(f"{name}: {100 * found.success:.1f} % of {len(found.solved)}", flush=True)


def answer_by_others(runs: Path, seed: int) -> None:
    """Let MemAgent's model answer each book of 2,000 tokens by the notes of the next one, about its own key."""
    file = runs / f"horizon-memagent-{seed}-notes.json"
    if file.is_file() or not (runs / f"horizon-memagent-{seed}-2k.json").is_file():
        return
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = runs / f"horizon-memagent-{seed}" / "model"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with Run.open(runs / f"horizon-memagent-{seed}-2k", writable=False) as run:
        episodes = [t for t in run.trajectories() if isinstance(t.outcome, Score) and len(t.turns) > 1]
    notes = [
        tokenizer.decode(t.turns[-2].completion.token_ids, skip_special_tokens=True).strip() for t in episodes
    ]
    solved: dict[str, bool] = {}
    for t, other in zip(episodes, [*notes[1:], *notes[:1]], strict=True):
        key, value = question_of(t.task, "2k")
        prompt = tokenizer.decode(t.turns[-1].prompt_ids)
        swapped = re.sub(r"Memory: .*", f"Memory: {re.sub(r'^[a-z]+', key, other)}", prompt)
        ids = torch.tensor([tokenizer.encode(swapped, add_special_tokens=False)])
        said: torch.Tensor = model.generate(  # pyright: ignore[reportAttributeAccessIssue]
            ids, max_new_tokens=8, do_sample=False, pad_token_id=tokenizer.eos_token_id
        )
        text = tokenizer.decode(said[0, ids.shape[1] :], skip_special_tokens=True)
        solved[t.task.id] = text.strip() == f"answer {value}"
    file.write_text(json.dumps(asdict(Reading(solved=solved, prompt=0, read=0.0, resident=0.0))))
    print(f"{file.stem}: {100 * fmean(solved.values()):.1f} % of {len(solved)}", flush=True)


def question_of(task: Task, kind: str) -> tuple[str, int]:
    """Return the key that the book of `task` is asked for, and its value."""
    with closing(find(environment_of(kind))()) as environment:
        begin(environment, task)
        (question,) = environment.snapshot().book.questions  # pyright: ignore[reportAttributeAccessIssue]
    return question.keys[0], question.answer


def work(runs: Path, seed: int, arm: str) -> None:
    """Train an arm whose start is there, and let it read."""
    if train(runs, arm, seed):
        for kind in readings_of(arm, seed):
            read_books(runs, arm, seed, kind)
        if arm == "memagent":
            answer_by_others(runs, seed)


def find_reading(runs: Path, arm: str, seed: int, kind: str) -> Reading | None:
    """Return what came of a reading, if it is done."""
    file = runs / f"horizon-{arm}-{seed}-{kind}.json"
    return Reading(**json.loads(file.read_text())) if file.is_file() else None


def show(value: Reading | None) -> str:
    """Return success in percent, or that there is none."""
    return "not done" if value is None else f"{100 * value.success:.1f} %"


COLUMNS = (
    ("start", "2k"), ("memagent", "2k"), ("dealt", "2k"), ("imitation", "2k"), ("memagent", "notes"), ("start", "16k"),
    ("memagent", "16k"), ("memagent", "cut16k"), ("memagent", "64k"), ("memagent", "cut64k"),
)  # fmt: skip


def tell(runs: Path, seeds: Sequence[int]) -> None:
    """Print the tables and the tests of what is done."""
    print(
        f"| books of | who reads | {' | '.join(f'seed {seed}' for seed in seeds)} |\n|---|---|{'---|' * len(seeds)}"
    )
    for arm, kind in COLUMNS:
        told = " | ".join(show(find_reading(runs, arm, seed, kind)) for seed in seeds)
        print(f"| {kind} | {arm} | {told} |")
    for other in ("dealt", "imitation", "start"):
        tell_difference(runs, seeds, other)
    tell_pairs(runs, seeds, "16k", "cut16k")
    tell_pairs(runs, seeds, "64k", "cut64k")
    print(
        "\n| tokens read for a book | longest prompt | its keys and values | resident set, two books at once |"
    )
    print("|---|---|---|---|")
    for kind in ("two2k", "two16k", "64k"):
        if found := find_reading(runs, "memagent", 0, kind):
            cache = found.prompt * LAYERS * HEADS * WIDTH * 2 * BYTES / 1024**2
            print(f"| {found.read:,.0f} | {found.prompt} | {cache:.1f} MiB | {found.resident:.2f} GiB |")


def tell_difference(runs: Path, seeds: Sequence[int], other: str) -> None:
    """Print how far MemAgent ends above `other` on books of 2,000 tokens, over seeds."""
    pairs = [
        (find_reading(runs, "memagent", seed, "2k"), find_reading(runs, other, seed, "2k")) for seed in seeds
    ]
    found = [one.success - two.success for one, two in pairs if one and two]
    if len(found) > 1:
        print(f"memagent over {other} at 2k: {Difference.over(found)}")


def tell_pairs(runs: Path, seeds: Sequence[int], whole: str, cut: str) -> None:
    """Print which books are answered by reading all of them and not by what is left of them, and the reverse."""
    won = lost = 0
    for seed in seeds:
        one, two = (find_reading(runs, "memagent", seed, kind) for kind in (whole, cut))
        if one and two:
            won += sum(is_right and not two.solved[book] for book, is_right in one.solved.items())
            lost += sum(not is_right and two.solved[book] for book, is_right in one.solved.items())
    if won + lost:
        chance = binomtest(won, won + lost, alternative="greater").pvalue
        told = f"{won} books by the whole text alone, {lost} by what is left of it alone"
        print(f"{whole}: {told}, one-sided p = {chance:.2g}")


def draw(runs: Path, seeds: Sequence[int], path: Path) -> None:
    """Draw success by the length of the books."""
    from quintain.dashboard.curve import BLUE, TASKS, add_legend, empty_axes, png_of
    from quintain.store.files import replace_file

    axes = empty_axes(8, 4)
    lines = {
        "MemAgent": ("memagent", ("2k", "16k", "64k")), "start": ("start", ("2k", "16k")),
        "MemAgent, text cut at 2,048": ("memagent", ("2k", "cut16k", "cut64k")),
        "rewards dealt out": ("dealt", ("2k",)), "more imitation": ("imitation", ("2k",)),
    }  # fmt: skip
    for (name, (arm, kinds)), color in zip(lines.items(), (BLUE, *TASKS), strict=False):
        places: list[int] = []
        means: list[float] = []
        for kind in kinds:
            found = [each for seed in seeds if (each := find_reading(runs, arm, seed, kind))]
            if found:
                places.append({"2k": 2, "16k": 16, "64k": 64}[kind.removeprefix("cut")])
                means.append(100 * fmean(each.success for each in found))
        axes.plot(
            places, means, color=color, marker="o", label=name, linestyle="--" if "cut" in name else "-"
        )
    axes.set(
        xscale="log", xlabel="thousand tokens of text", ylabel="questions answered rightly", ylim=(0, 105)
    )
    axes.set_xticks([2, 16, 64], ["2", "16", "64"])
    axes.set_yticks(range(0, 101, 25), [f"{percent}%" for percent in range(0, 101, 25)])
    add_legend(axes, loc="upper left", bbox_to_anchor=(0, -0.14), ncols=2)
    replace_file(path, png_of(axes))
    print(f"picture  {path}")


def main() -> None:
    """Run what is not done, and tell what is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--only", type=int, nargs="*", help="seeds to run now (default: all)")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="processes at once (default: a core each)"
    )
    parser.add_argument("--picture", type=Path, help="file of the picture (default: beside the runs)")
    parser.add_argument(
        "--table", action="store_true", help="run nothing: tables and picture of what is done"
    )
    arguments = parser.parse_args()
    runs, seeds = arguments.runs, range(arguments.seeds)
    runs.mkdir(parents=True, exist_ok=True)
    if not arguments.table:
        wanted = list(seeds) if arguments.only is None else arguments.only
        with ThreadPoolExecutor(arguments.jobs) as pool:
            begun = dict(zip(wanted, pool.map(lambda seed: train(runs, "start", seed), wanted), strict=True))
            parts = [
                (seed, arm)
                for seed in wanted
                if begun[seed]
                for arm in ("memagent", "dealt", "imitation", "start")
            ]
            list(pool.map(lambda part: work(runs, *part), parts))
    tell(runs, seeds)
    draw(runs, seeds, arguments.picture or runs / "proof-horizon.png")


if __name__ == "__main__":
    main()
