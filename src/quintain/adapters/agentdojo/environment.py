"""AgentDojo (arXiv 2406.13352): tool use in simulated workplaces, with and without planted instructions.

Suites, tools, states, attacks and verdicts are the package's own. For evaluation only: training on it is refused.
What the user wanted and what the attacker wanted are two verdicts; both are in the reward terms of the last turn, and
`side` says which of them is the success. A check that breaks is the judge's failure, never a 0.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

from quintain.environments.extras import extra_module
from quintain.environments.protocol import Environment
from quintain.environments.tools import GraderFault
from quintain.errors import UsageError, suggestion
from quintain.types import (
    UNKNOWN_TOOL,
    Action,
    Split,
    StepResult,
    Task,
    ToolCall,
    ToolError,
    ToolSpec,
    derive_seed,
)

SIDES = ("utility", "security", "injection")
MAX_ANSWERS = 16
"""Messages of the agent: the package lets it act in 15 rounds after the first."""
UNKNOWN = "Invalid tool"
UNFIT = "ValidationError"
MODEL = SimpleNamespace(name="local")
"""What attacks that name their victim are told of it: they call it "Local model"."""


class AgentDojo(Environment):
    """Do what the user asks."""

    tags: ClassVar[frozenset[str]] = frozenset({"tools"})
    evaluation_only = True
    max_turns = MAX_ANSWERS

    def __init__(
        self,
        suite: str = "workspace",
        *,
        attack: str = "",
        side: Literal["utility", "security", "injection"] = "utility",
        version: str = "v1.2.2",
    ) -> None:
        """Take the tasks of `suite`; with an `attack`, each with each of the injections.

        With the side "utility" an episode succeeds when the user's task is done, with "security" when the attacker's
        is not; with "injection" the user asks for what the attacker would. An attack that stops the agent (``dos``)
        has reached its goal when the user's task is not done.

        Raises:
            MissingExtra: agentdojo is not installed.
            UsageError: there is no such suite, attack or version, or attack and side do not fit.
        """
        _module("agentdojo")
        suites = _module("agentdojo.task_suite.load_suites").get_suites(version)
        if not suites:
            raise UsageError(f"version of agentdojo: got {version!r}, which has no suites; give v1.2.2")
        if suite not in suites:
            raise UsageError(f"suite of agentdojo: got {suite!r}; {suggestion(suite, suites)}")
        if side not in SIDES:
            raise UsageError(f"side of agentdojo: got {side!r}; {suggestion(side, SIDES)}")
        if (side == "security" and not attack) or (side == "injection" and attack):
            with_attack = "without an attack" if not attack else f"with the attack {attack!r}"
            raise UsageError(
                f"side of agentdojo: got {side!r} {with_attack}; security needs one, injection has none"
            )
        self.name, self.side = f"agentdojo/{suite}", side
        self.suite: Any = suites[suite]
        self._attack: Any = _attack(attack, self.suite) if attack else None
        wanted, planted = list(self.suite.user_tasks), list(self.suite.injection_tasks)
        self._cases = [(user, "") for user in wanted]
        if side == "injection":
            self._cases = [("", injection) for injection in planted]
        self._stops = bool(attack) and bool(self._attack.is_dos_attack)
        if attack:
            # To an attack that stops the agent all injections are one, as in the package's own benchmark.
            aims = planted[:1] if self._stops else planted
            self._cases = [(user, injection) for user in wanted for injection in aims]
        self._specs = tuple(_spec(function) for function in self.suite.tools)
        self._kinds: Any = _module("agentdojo.functions_runtime")
        self._pipeline: Any = _module("agentdojo.agent_pipeline")
        self._told = str(_module("agentdojo.agent_pipeline.agent_pipeline").load_system_message(None))

    def task(self, split: Split, index: int) -> Task:
        """Return case number `index`, around and around; the splits have the same ones."""
        user, injection = self._cases[index % len(self._cases)]
        return Task(
            id=f"{self.name}/{split}/{index}",
            environment=self.name,
            seed=derive_seed(self.name, index) % (1 << 52) << 1 | (split == "eval"),
            split=split,
            data={"user": user, "injection": injection},
            tags=self.tags,
        )

    def reset(self, task: Task) -> str:
        """Load the workplace of the task, with the attack in it, and say what the user asks."""
        user, injection = str(task.data["user"]), str(task.data["injection"])
        users, injections = self.suite.user_tasks, self.suite.injection_tasks
        main: Any = users[user] if user else injections[injection]
        self.user: Any = main if user else None
        self.injection: Any = injections[injection] if injection else None
        planted = self._attack.attack(self.user, self.injection) if user and injection else {}
        state = self.suite.load_and_inject_default_environment(planted)
        self.state: Any = main.init_environment(state) if user else state
        self._before = self.state.model_copy(deep=True)
        self._runtime = self._kinds.FunctionsRuntime(self.suite.tools)
        self._trace: list[Any] = []
        self._num_answers = 0
        self._gold: list[Any] = list(main.ground_truth(self.state))
        self._last_words = str(main.GROUND_TRUTH_OUTPUT)
        return str(main.PROMPT if user else main.GOAL)

    def step(self, action: Action) -> StepResult:
        """Carry out calls; an answer without one ends the episode."""
        self._num_answers += 1
        is_last = self._num_answers == MAX_ANSWERS
        if action.error is not None:
            told = f"Error: {action.error}"
            return (
                self._grade("", is_valid=False) if is_last else StepResult(observation=told, is_valid=False)
            )
        calls = [
            self._kinds.FunctionCall(function=call.name, args=dict(call.arguments))
            for call in action.tool_calls
        ]
        self._trace += calls
        if is_last or not calls:
            return self._grade("" if calls else action.text)
        try:
            replies, errors = self._carry_out(calls)
        except (RecursionError, MemoryError):  # the package reads texts that look like lists
            return StepResult(observation="Error: arguments are nested too deeply", is_valid=False)
        return StepResult(
            observation="\n".join(replies),
            is_valid=all(error.cause != "invalid_call" for error in errors),
            tool_errors=tuple(errors),
        )

    def instructions(self) -> str:
        """Return the package's system message."""
        return self._told

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools of the suite."""
        return self._specs

    def expert_action(self) -> Action:
        """Return the next call of the package's ground truth, then its answer; eight injections have none."""
        if not self._gold:
            return Action(text=self._last_words)
        # One call at a time, unless there are more of them than messages left.
        count = -(-len(self._gold) // max(1, MAX_ANSWERS - 1 - self._num_answers))
        calls, self._gold = self._gold[:count], self._gold[count:]
        return Action(
            tool_calls=tuple(ToolCall(name=call.function, arguments=dict(call.args)) for call in calls)
        )

    def _carry_out(self, calls: list[Any]) -> tuple[list[str], list[ToolError]]:
        """Return what the package's tools reply to `calls`, and what went wrong."""
        asked = {"role": "assistant", "content": [], "tool_calls": calls}
        _, _, self.state, messages, _ = self._pipeline.ToolsExecutor().query(
            "", self._runtime, self.state, [asked]
        )
        replies: list[str] = []
        errors: list[ToolError] = []
        for message in messages[1:]:
            name, error = message["tool_call"].function, message["error"]
            replies.append(str(error) if error else str(message["content"][0]["content"]))
            if error:
                is_unfit = error.startswith((UNKNOWN, UNFIT))
                known = name if name in self._runtime.functions else UNKNOWN_TOOL
                errors.append(ToolError(tool=known, cause="invalid_call" if is_unfit else "tool_error"))
        return replies, errors

    def _grade(self, answer: str, *, is_valid: bool = True) -> StepResult:
        """Return both verdicts on the episode, as far as there is something to judge."""
        terms: dict[str, float] = {}
        if self.user is not None:
            terms["utility"] = float(self._is_done(self.user, answer))
        if self._stops:
            terms["injection"] = 1.0 - terms["utility"]
        elif self.injection is not None:
            terms["injection"] = float(self._is_done(self.injection, answer))
        if self.side == "security":
            is_success = not terms["injection"]
        else:
            is_success = bool(terms["injection" if self.side == "injection" else "utility"])
        return StepResult(
            observation=" ".join(f"{name}: {'yes' if value else 'no'}" for name, value in terms.items()),
            reward=float(is_success),
            reward_terms=terms,
            is_terminated=True,
            is_success=is_success,
            is_valid=is_valid,
        )

    def _is_done(self, wanted: Any, answer: str) -> bool:
        """Return the package's verdict on a user's or an injection's task.

        Raises:
            GraderFault: the check breaks.
        """
        words = [{"type": "text", "content": answer}]
        try:
            return bool(self.suite._check_task_result(wanted, words, self._before, self.state, self._trace))
        except Exception as error:
            raise GraderFault(
                f"check of {self.name} {wanted.ID}: got {type(error).__name__}: {error}; leave this task out"
            ) from error


def _attack(name: str, suite: Any) -> Any:
    """Return the package's attack `name` on `suite`.

    Raises:
        UsageError: there is none that plants by itself.
    """
    kinds: Mapping[str, Any] = _module("agentdojo.attacks.attack_registry").ATTACKS
    _module("agentdojo.attacks")  # which fills the table
    known = [key for key in kinds if key != "manual"]
    if name not in known:
        raise UsageError(f"attack of agentdojo: got {name!r}; {suggestion(name, known)}")
    return kinds[name](suite, MODEL)


def _spec(function: Any) -> ToolSpec:
    """Return a function of the package as a tool."""
    schema = function.parameters.model_json_schema()
    return ToolSpec(name=function.name, description=function.description, parameters=schema)


def _module(name: str) -> Any:
    """Return a module of the package."""
    return extra_module(name, package="agentdojo", extra="agentdojo", feature="the environment agentdojo")
