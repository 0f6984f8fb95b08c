"""Tasks that are proposed from how other tasks begin, whether or not they can be solved (PAE, arXiv 2412.13194).

An environment with `Proposes` is begun with a task; the proposer sees what an agent would see of it and says what else
could be asked for there. That is drawn by the environment itself, or said by a model behind a chat endpoint, which is
told nothing but that. What the environment cannot read, or holds out, is no task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from random import Random

from quintain.engines.chat_client import ChatClient, ChatSpec, ask_at_once, find_marked_line
from quintain.environments.boundary import check_instructions
from quintain.environments.protocol import Environment, Proposes, begin, environment_name
from quintain.errors import DataError, UsageError
from quintain.processes.http_json import HttpTrouble
from quintain.rollout.hindsight import asking
from quintain.types import Task, as_text, derive_seed

MARK = "TASK:"
RULES = (
    "You propose tasks for an agent to practise. The user message is JSON: what the agent is told of a world, and what "
    "it is shown as one task begins, in which the goal is said. Propose another goal that somebody could have there, "
    "as varied as you can; it may be hard. Say it in exactly the form in which that goal is said. End with one line of "
    f"its own, and write nothing after it: {MARK} your goal"
)
MAX_TOKENS = 256


class Proposer:
    """A model behind a chat endpoint that proposes: ``Proposer("http://127.0.0.1:8000/v1?model=qwen&tape=t.jsonl")``.

    Without a tape, a step that is broken off and begun again asks again.

    Raises:
        UsageError: it is no such spec.
    """

    def __init__(self, spec: str) -> None:
        self._spec = ChatSpec.read(spec, asked="proposer")
        self._client: ChatClient | None = None

    def goals(self, told: str, shown: Sequence[str], seed: int) -> list[str | None]:
        """Return a goal in words for each task that begins with what is `shown`; None where it says none in form.

        `told` is what the agent is told of the environment. Equal questions are asked as often as they come.

        Raises:
            DataError: the endpoint does not answer.
        """
        client = self._client = self._client or self._spec.client()

        def ask(number: int, text: str) -> str:
            asked = json.dumps({"told": told, "shown": text}, ensure_ascii=False)
            messages = [{"role": "system", "content": RULES}, {"role": "user", "content": asked}]
            return client.ask(
                messages,
                temperature=self._spec.temperature,
                max_tokens=MAX_TOKENS,
                number=derive_seed("proposal", seed, number),
            )

        try:
            return [read_goal(text) for text in ask_at_once(ask, range(len(shown)), shown)]
        except HttpTrouble as trouble:
            raise DataError(f"proposer at {client.url}: got {trouble.got}; check the endpoint") from trouble


def read_goal(text: str) -> str | None:
    """Return the goal in a proposer's answer; None where its last line is none, or there are several."""
    line = find_marked_line(text, MARK)
    return None if line is None else line.removeprefix(MARK).strip()


def propose_tasks(
    make: Callable[[], Environment], tasks: Sequence[Task], by: Proposer | None, *, seed: int
) -> list[Task | None]:
    """Return what `by` proposes in the place of each of `tasks`, having seen how it begins; None where that is no task.

    Where there is no such model, the environment draws what is proposed.

    Raises:
        UsageError: the environment does not know what could be asked for.
        DataError: the model does not answer.
    """
    found: list[Task | None] = []
    with closing(make()) as environment:
        if not isinstance(environment, Proposes):
            raise UsageError(
                f"proposals in {environment_name(environment)}: got an environment that cannot say what could be asked "
                "for; give it proposal(rng) and read_proposal(text), or leave the proposer out"
            )
        goals: list[str | None] = []
        if by is not None:
            shown = [as_text(begin(environment, task)) for task in tasks]
            goals = by.goals(check_instructions(environment), shown, seed)
        for number, task in enumerate(tasks):
            begin(environment, task)
            if by is None:
                data = environment.proposal(Random(derive_seed("proposal", seed, number)))
            else:
                goal = goals[number]
                data = None if goal is None else environment.read_proposal(goal)
            found.append(None if data is None else asking(task, data))
    return found
