"""AutoFlow: is a workflow that is kept by its score better on new tasks than one that is kept by any score?

A help desk that writes its commands as words (`desk`, nothing denied, parts of the reward on the way). A script follows
a workflow: it does what the block at hand says, with names and numbers that it read in the talk, and knows nothing
else; a block that it does not know makes it say hello. Another script writes: it knows the outline of a talk and, for
each of its nine blocks, four things that could be said there, of which one is of use. It takes the workflow that
the question calls the best and says something else in one or two blocks; one text in ten is no workflow. The number is
the success on new tasks of the workflow that is kept at the end. The control is the same with the scores of each step
dealt out anew among its workflows. The rival is a writer who is shown no earlier workflow, so that each is drawn
afresh, and whose workflows are kept in the same way: search without the history. In the null world the follower does
not look at the workflow, so that every score is luck.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from statistics import fmean
from typing import Any

from quintain.agents.workflow import SPLIT, Block, Workflow, read_workflow
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment
from quintain.methods.agents.auto_flow import PLAIN, Config, Tried, kept_workflow, question_text, try_texts
from quintain.types import Action, Task, as_text, derive_seed

WORLD = "desk?interface=text&kinds=cancel,refund,exchange,price&denied=0&dense=true&max_turns=9"
NEW, FIRST_NEW, CHANCE = 48, 500_000, 0.4
"""New tasks of the end, the number of the first, and the chance of success in the null world."""
WANTS = {"cancel": "cancel", "return": "refund", "size": "exchange", "pay": "price"}
"""Word of a customer's first message → the key of what is wanted."""
WANTED = "What is wanted?"
ORDER, NAME, PRICE, SIZE = (
    re.compile(r"^Order (\d+)\.$", re.MULTILINE), re.compile(r"^I am (\w+)\.$", re.MULTILINE),
    re.compile(r"(\d+) coins"), re.compile(r"^(Small|Medium|Large)\.$", re.MULTILINE),
)  # fmt: skip
USELESS = "say Hello."
SAYS: dict[str, str] = {
    "Ask for the name.": "say What is your name?", "Find the customer.": "find {name}",
    "Ask which order.": "say Which order?", "Show the order.": "show {order}",
    "Cancel the order.": "cancel {order}", "Refund the order.": "refund {order}",
    "Ask for the size.": "say Which size?", "Exchange the order.": "exchange {order} {size}",
    "Say the price.": "say It was {price}.", "Say goodbye.": "say Done.",
    "Refuse it.": "refuse too_late", "Look at the stock.": "stock coat",
}  # fmt: skip
"""What a block says → the command of the script; what is not here is useless."""
HELLO, CITY, SORRY = "Say hello.", "Ask for the city.", "Say sorry."
CHOICES: dict[str, tuple[str, ...]] = {
    "first": ("Ask for the name.", HELLO, CITY, "Ask which order."),
    "second": ("Find the customer.", SORRY, "Look at the stock.", CITY),
    "third": ("Ask which order.", "Ask for the size.", HELLO, "Refuse it."),
    "fourth": ("Show the order.", "Look at the stock.", SORRY, CITY),
    "cancel": ("Cancel the order.", "Refund the order.", "Refuse it.", SORRY),
    "refund": ("Refund the order.", "Cancel the order.", "Say the price.", HELLO),
    "price": ("Say the price.", "Cancel the order.", "Refuse it.", CITY),
    "size": ("Ask for the size.", "Look at the stock.", SORRY, "Refund the order."),
    "exchange": ("Exchange the order.", "Cancel the order.", "Ask for the city.", "Refuse it."),
}
"""Block → what could be said there, that of use first."""
OUTLINE = {
    "first": "second", "second": "third", "third": "fourth", "fourth": "wanted",
    "cancel": "end", "refund": "end", "price": "end", "size": "exchange", "exchange": "end",
}  # fmt: skip
"""Process → what comes after it."""
WAYS = "cancel: cancel; refund: refund; price: price; exchange: size"


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications: the success on new tasks of the workflows that were kept."""
    environment, steps = find(WORLD)(), int(options["steps"])
    new = [environment.task("train", FIRST_NEW + k) for k in range(NEW)]
    rows: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("auto_flow", seed, number)
        kept = {
            arm: optimise(arm, own, steps, partial(desk_score, environment, own))
            for arm in ("method", "control", "unshown")
        }
        found = {
            arm: fmean(episode(environment, flow, task)[1] for task in new) for arm, (flow, _) in kept.items()
        }
        null = {arm: optimise(arm, own, steps, luck(own)) for arm in ("method", "control")}
        rows.append(
            {
                "method": found["method"],
                "control": found["control"],
                "extra.unshown": found["unshown"],
                "extra.blank": fmean(episode(environment, read_workflow(PLAIN), task)[1] for task in new),
                **{f"null_{arm}": new_luck(arm, own) for arm in null},
                "extra.luck": null["method"][1] - CHANCE,
            }
        )
    return rows


Score = Callable[[Workflow, int], float]
"""(workflow, step) → its mean score on the tasks of the step"""


def optimise(arm: str, seed: int, steps: int, score: Score) -> tuple[Workflow, float]:
    """Return the workflow that `arm` keeps after `steps` at the method's defaults, and its score in the last step."""
    config, history = Config(), list[Tried]()
    for step in range(steps):
        rng = Random(derive_seed(seed, "write", step))
        question = question_text([] if arm == "unshown" else history, config.shown, "I want something.")

        def follow(flows: Sequence[Workflow], step: int = step) -> list[float]:
            scores = [score(flow, step) for flow in flows]
            if arm == "control":
                Random(derive_seed(seed, "deal", step)).shuffle(scores)
            return scores

        texts = [rewrite(question, rng) for _ in range(config.candidates)]
        history += try_texts(texts, kept_workflow(history), follow)
    return kept_workflow(history), max(
        each.score for each in history[-config.candidates - 1 :] if each.is_kept
    )


def new_luck(arm: str, seed: int) -> float:
    """Return the success on new tasks of who does not look at the workflow that `arm` kept."""
    rng = Random(derive_seed(seed, "new luck", arm))
    return fmean(float(rng.random() < CHANCE) for _ in range(NEW))


def luck(seed: int) -> Score:
    """Return a score that has nothing to do with the workflow."""
    rng = Random(derive_seed(seed, "luck"))
    return lambda _flow, _step: fmean(float(rng.random() < CHANCE) for _ in range(Config().tasks))


def desk_score(environment: Environment, seed: int, flow: Workflow, step: int) -> float:
    """Return the mean return of `flow` on the tasks of `step`."""
    config = Config()
    first = derive_seed(seed, "tasks") % 100_000 + step * config.tasks
    tasks = [environment.task("train", first + k) for k in range(config.tasks)]
    return fmean(episode(environment, flow, task)[0] for task in tasks)


def episode(environment: Environment, flow: Workflow, task: Task) -> tuple[float, float]:
    """Return what the script earns that follows `flow` in `task`, and whether it solved it."""
    heard, earned, block = [as_text(environment.reset(task))], 0.0, flow.first
    for _ in range(environment.max_turns):
        while block.kind == "decision":
            block = flow.pass_on(block, wish(heard[0]))
        result = environment.step(Action(text=command(block, "\n".join(heard))))
        heard.append(as_text(result.observation))
        earned += result.reward
        block = flow.pass_on(block)
        if result.is_over:
            return earned, float(bool(result.is_success))
    return earned, 0.0


def wish(first: str) -> str:
    """Return the key of what the customer wants, by its `first` message."""
    return next((key for word, key in WANTS.items() if word in first), "")


def command(block: Block, heard: str) -> str:
    """Return what the script does at `block` after all that it `heard`."""
    words: dict[str, str] = {}
    for name, pattern in (("order", ORDER), ("name", NAME), ("price", PRICE), ("size", SIZE)):
        found = pattern.findall(heard)
        words[name] = found[-1].lower() if name == "size" and found else found[-1] if found else "?"
    return SAYS.get(block.says, USELESS).format(**words)


def rewrite(question: str, rng: Random) -> str:
    """Return the workflow that `question` calls the best, changed in one or two blocks, or a new one."""
    shown = re.search(r"Best workflow, with score \S+:\n((?:.+ ::: .*\n?)+)", question)
    said = {name: rng.choice(choices) for name, choices in CHOICES.items()}
    best = read_workflow(PLAIN if shown is None else shown[1])
    if "wanted" in best.blocks:
        said = {name: best.blocks[name].says for name in CHOICES}
        for name in rng.sample(list(CHOICES), rng.randint(1, 2)):
            said[name] = rng.choice(CHOICES[name])
    lines = [
        f"{name} {SPLIT} process {SPLIT} {text} {SPLIT} next: {OUTLINE[name]}" for name, text in said.items()
    ]
    lines.append(f"wanted {SPLIT} decision {SPLIT} What is wanted? {SPLIT} {WAYS}")
    if rng.random() < 0.9:
        lines.append(f"end {SPLIT} terminal {SPLIT} Say goodbye. {SPLIT}")
    return "\n".join(lines)
