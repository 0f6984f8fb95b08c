"""τ-bench (arXiv 2406.12045) and τ²-bench (2506.07982): their own tasks, policies, tools and databases.

The runner, the verdict and the end of a talk are `quintain.environments.dialogue`'s. The user is a stand-in that
follows rules, or a language model behind an endpoint, which gets the task's words and, in τ², tools of its own. Tasks
that only a judge could grade, and those that doing nothing solves, are left out: `left_out` says which.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from quintain.adapters.tau.published import Published, Source, load_tau2, load_tau_bench
from quintain.engines.chat_client import ChatClient, ChatSpec
from quintain.environments.dialogue import (
    STOP,
    Call,
    Line,
    Persona,
    Scenario,
    Service,
    Speaker,
    Talk,
    UserFault,
)
from quintain.errors import DataError, UsageError
from quintain.processes.http_json import HttpTrouble
from quintain.types import Split, Task, ToolSpec, derive_seed

RULES = (
    "You play a customer who talks to a service desk. Say one short message at a time, only what you are asked for, "
    "and invent nothing. Use your tools when you are asked to do something with your device, and say what came of it. "
    f"When all you wanted is done, or was refused for good, answer with {STOP} and nothing after it. Your role: "
)
GREETING = "Hello, how can I help?"
HOW = "\n\nIn each turn either call tools or speak to the user. The user ends the talk."


class Benchmark(Service):
    """Serve the user as the policy says."""

    is_variant: ClassVar[bool] = True

    def __init__(self, source: Source, *, user: str, mishears: float, patience: int, max_turns: int) -> None:
        """Take the tasks of `source`.

        Raises:
            UsageError: the user is no endpoint, or a number is out of its range.
        """
        if not 0 <= mishears <= 1 or patience < 0 or max_turns < 1:
            raise UsageError(
                f"{self.name}: got mishears={mishears}, patience={patience}, max_turns={max_turns}; give a share "
                "from 0 to 1, no negative patience and at least 1 turn"
            )
        self._source = source
        self.left_out = dict(source.left_out or {})
        self.evaluation_only = not source.is_split
        self.ending_tools = source.ending_tools
        self.max_turns = max_turns
        self._persona = Persona(mishears=mishears, patience=patience)
        spec = None if user == "scripted" else ChatSpec.read(user, asked=f"user of {self.name}")
        self._client = None if spec is None else spec.client()
        self._temperature = 0.0 if spec is None else spec.temperature

    def num_tasks(self, split: Split) -> int | None:
        """Return how many tasks of `split` there are."""
        return len(self._source.tasks[split])

    def task(self, split: Split, index: int) -> Task:
        """Return task number `index`, around and around."""
        tasks = self._source.tasks[split]
        found = tasks[index % len(tasks)]
        return Task(
            id=f"{self.name}/{split}/{index}",
            environment=self.name,
            seed=derive_seed(self.name, found.id) % (1 << 52) << 1 | (split == "eval"),
            split=split,
            data={"task": found.id},
            tags=type(self).tags,
        )

    def instructions(self) -> str:
        """Return the benchmark's policy."""
        return self._source.policy + HOW

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the benchmark's tools for the agent."""
        return self._source.tools

    def open(self, task: Task) -> Talk:
        """Return the talk of the task that is named.

        Raises:
            DataError: there is none of that name.
        """
        name = task.data.get("task")
        found = next((own for own in self._source.tasks[task.split] if own.id == name), None)
        if found is None:
            raise DataError(f"task of {self.name}: got {name!r}; name one of {task.split}")
        return Talk(
            domain=self._source.open(found),
            reference=self._source.open(found),
            wanted=found.wanted,
            user=self._user(found),
        )

    def close(self) -> None:
        """Give up whoever waits for the endpoint."""
        if self._client is not None:
            self._client.close()

    def _user(self, task: Published) -> Speaker:
        """Return who plays the user of `task`."""
        if self._client is not None:
            return Endpoint(
                self._client, task, self._source.user_tools, self._persona, temperature=self._temperature
            )
        return Scenario(
            first=task.opening,
            facts=task.facts,
            tools=tuple(spec.name for spec in self._source.user_tools),
            known=tuple(call for call in task.wanted.calls if call.by == "user"),
            persona=self._persona,
            seed=derive_seed(task.id),
        )


class Endpoint:
    """A user played by a language model: ``Endpoint(client, task, tools, persona)``."""

    def __init__(
        self,
        client: ChatClient,
        task: Published,
        tools: Sequence[ToolSpec],
        persona: Persona,
        *,
        temperature: float = 0.0,
    ) -> None:
        """Take the task's words as the role, and the user's tools."""
        self._client, self._task, self._persona = client, task, persona
        self._temperature = temperature
        self._tools: list[dict[str, Any]] = [
            {
                "type": "function",
                "function": {
                    "name": spec.name,
                    "description": spec.description,
                    "parameters": dict(spec.parameters),
                },
            }
            for spec in tools
        ]

    def opening(self) -> str:
        """Return what it says to a greeting."""
        said = self._ask(())
        return said if isinstance(said, str) else self._task.opening

    def reply(self, lines: Sequence[Line]) -> str | Call:
        """Return what the model says, or the first tool that it calls."""
        calls: list[Call] = []

        def say(understood: Sequence[Line]) -> str:
            said = self._ask(understood)
            if isinstance(said, str):
                return said
            calls.append(said)
            return ""

        said = self._persona.reply(lines, derive_seed(self._task.id), say)
        return calls[0] if calls else said

    def _ask(self, lines: Sequence[Line]) -> str | Call:
        """Return the model's next message.

        Raises:
            UserFault: there was none before the deadline, or an empty one.
        """
        roles = {"agent": "user", "user": "assistant", "tool": "user"}
        talk = [
            {"role": roles[speaker], "content": f"[your tool] {text}" if speaker == "tool" else text}
            for speaker, text in (("agent", GREETING), *lines)
        ]
        role = f"{RULES}{self._task.opening} {self._task.facts}"
        try:
            reply = self._client.reply(
                [{"role": "system", "content": role}, *talk],
                temperature=self._temperature,
                tools=self._tools,
            )
        except HttpTrouble as trouble:
            raise UserFault.of(trouble.kind, self._client.url, trouble.got) from trouble
        if reply.calls:
            return Call(name=reply.calls[0].name, arguments=dict(reply.calls[0].arguments), by="user")
        if not reply.text.strip():
            raise UserFault.of("malformed", self._client.url, "an empty message")
        return reply.text.strip()


class Tau2(Benchmark):
    """Serve the user as the policy says."""

    is_variant: ClassVar[bool] = True

    def __init__(
        self,
        domain: str = "airline",
        *,
        checkout: str = "",
        user: str = "scripted",
        mishears: float = 0.0,
        patience: int = 0,
        idle_tasks: bool = False,
        max_turns: int = 30,
    ) -> None:
        """Take the tasks of `domain` from the folder `checkout`, or from the package that is installed.

        Args:
            domain: airline, retail, telecom, mock, or another that the checkout has.
            checkout: a clone of tau2-bench, whose Python is run.
            user: scripted, or an endpoint: ``http://127.0.0.1:8000/v1?model=NAME``.
            mishears: share of messages to which the user says again what it said last.
            patience: messages after which the user leaves; 0: it stays.
            idle_tasks: whether tasks that doing nothing solves are there, too.
            max_turns: turns after which the talk is cut.
        """
        self.name = f"tau2/{domain}"
        source = load_tau2(domain, checkout, keeps_idle=idle_tasks)
        super().__init__(source, user=user, mishears=mishears, patience=patience, max_turns=max_turns)


class TauBench(Benchmark):
    """Serve the user as the policy says."""

    is_variant: ClassVar[bool] = True

    def __init__(
        self,
        domain: str = "retail",
        *,
        checkout: str = "",
        user: str = "scripted",
        mishears: float = 0.0,
        patience: int = 0,
        idle_tasks: bool = False,
        max_turns: int = 30,
    ) -> None:
        """Take the tasks of `domain` from the folder `checkout`; the options are those of `Tau2`."""
        self.name = f"tau-bench/{domain}"
        source = load_tau_bench(domain, checkout, keeps_idle=idle_tasks)
        super().__init__(source, user=user, mishears=mishears, patience=patience, max_turns=max_turns)
