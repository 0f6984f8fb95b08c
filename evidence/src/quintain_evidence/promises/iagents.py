"""iAgents on a real model: SmolLM2 talks with itself over two cards, each seat with a plan of facts and a bank.

It has seen some dozens of talks of the expert through the same harness (without them it names no fact in brackets, so
that nothing is recalled); then it writes plans, marks and messages as it likes. Whatever it writes, each message is
asked for with the facts of its own plan beside it, the talk ends within its turns, and no value of a card, a number of
four digits, stands in a prompt of the other seat before it was said.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from quintain.agents.infonav import WHOLE
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.catalog import find
from quintain.learning.saved import load_policy
from quintain.rollout.collect import Rollout
from quintain.testing.pupil import tasks_from
from quintain.text.chat import Chat
from quintain.types import flatten_scored
from quintain.warm_start.start import build_agent
from quintain_evidence.experiments.multiagent.iagents import NUMBER, deal_of, has_leak
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import make_start

MODEL = "smollm2"
TURNS, TALKS, DEMONSTRATIONS = 6, 4, 32
WORLD = f"twocards?facts=4&terms=4&values=9000&keys=16&consensus=true&max_turns={TURNS}"
AGENT = "infonav?recall=3&max_tokens=40+text?max_tokens=24"


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Let the model see the expert, then talk with itself, and read what each seat was shown."""
    start = make_start(["train", "sft", "--environment", WORLD, "--agent", AGENT], runs, DEMONSTRATIONS)
    loaded, make = load_policy(str(start)), find(WORLD)
    chat, tasks = Chat(loaded.tokenizer), tasks_from(WORLD, TALKS, split="train")
    agent = build_agent(loaded.tokenizer, make, temperature=0.7, max_tokens=24, agent=AGENT)
    with (
        closing(build_engine(EngineSettings(), loaded.model, loaded.tokenizer)) as engine,
        closing(Rollout(agent, make, engine)) as rollout,
    ):
        talks = flatten_scored(rollout.groups(tasks, size=1, seed=1))
    cards = [[{value for _, value in card} for card in deal_of(talk.task).cards] for talk in talks]
    leaks = [has_leak(talk, chat, own) for talk, own in zip(talks, cards, strict=True)]
    turns = [turn for talk in talks for turn in talk.turns]
    acts = [turn for turn in turns if not turn.is_internal]
    shown = [chat.text(turn.prompt_ids) for turn in acts]
    own = [chat.text(turn.prompt_ids) for turn in turns if turn.is_internal]
    named = sum(WHOLE not in text for text in shown)
    checks = [
        Check(
            name="ends",
            has_passed=len(talks) == TALKS
            and all(sum(not t.is_internal for t in x.turns) <= TURNS for x in talks),
            detail=f"{len(talks)} talks of at most {TURNS} messages, {len(acts)} in all",
        ),
        Check(
            name="facts",
            has_passed=bool(shown) and all("Facts: " in text for text in shown),
            detail=f"beside each of {len(shown)} messages; the plan had named its facts for {named} of them",
        ),
        Check(
            name="recalls",
            has_passed=any("You recall: " in text and NUMBER.search(text) for text in own),
            detail=f"as in {next((t for t in own if 'You recall' in t), '').replace(chr(10), ' ')!r:.90}",
        ),
        Check(
            name="keeps apart",
            has_passed=not any(leaks),
            detail=f"{sum(leaks)} of {len(leaks)} talks show a value before its owner said it",
        ),
    ]
    return checks, {
        "talks": float(len(talks)),
        "messages": float(len(acts)),
        "named": float(named),
        "solved": float(sum(talk.is_success for talk in talks)),
    }
