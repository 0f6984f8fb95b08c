"""Environments of verifiers (its API of version 0.1), played by their own loop and graded by their own rubrics.

The package takes over the signals of its process, so it runs in a worker: ``worker/verifiers/NAME?python=…``. NAME is
an installed environment or a file with a `load_environment`. A reward function that raises is the judge's failure,
where the package itself would go on with 0.
"""

import json
import random
import re
import signal
import threading
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from quintain.adapters.verifiers.rollout import INSTALL, End, Loop, Question, package
from quintain.environments.catalog import file_member
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, UsageError
from quintain.types import (
    UNKNOWN_TOOL,
    Action,
    Image,
    Observation,
    Split,
    StepResult,
    Task,
    Text,
    ToolError,
    ToolSpec,
)

SIGNALS = (signal.SIGINT, signal.SIGTERM)
OLDEST, NEXT = (0, 1, 14), (0, 2, 0)
PICTURE = re.compile(r"data:(image/[\w.+-]+);base64,(.+)", re.DOTALL)
EVAL_SHARE = 4
"""Without an evaluation set of its own, every fourth row is for evaluation."""
CUT = frozenset(
    {"max_turns_reached", "timeout_reached", "max_total_completion_tokens_reached", "prompt_too_long"}
)
"""Stop conditions that cut an episode instead of ending it."""


class Verifiers(Environment):
    """Do what you are asked."""

    tags: ClassVar[frozenset[str]] = frozenset()
    return_range = (float("-inf"), float("inf"))

    def __init__(self, name: str, *, max_turns: int = 20, deadline: float = 60.0, **settings: Any) -> None:
        """Load the environment `name`; `settings` go to its ``load_environment``.

        `max_turns` is for environments without a limit of their own; `deadline` is for each answer, in seconds.

        Raises:
            MissingExtra: verifiers is not installed.
            UsageError: it has another version, is not in a worker, or there is no such environment.
            EnvironmentFault: the environment cannot be loaded.
        """
        loader = _loader(name)
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            self._world: Any = loader(**settings)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        self.name = f"verifiers/{Path(name).stem if name.endswith('.py') else name}"
        if self._world.requires_group_rollouts:
            raise UsageError(
                f"environment {self.name}: got rewards that compare the episodes of a group, "
                "which an episode by itself does not have; give a reward for each episode"
            )
        self._worlds = list(getattr(self._world, "envs", ())) or [self._world]
        for world in self._worlds:
            if getattr(world, "max_turns", 0) <= 0:
                world.max_turns = max_turns
        self.max_turns = max(world.max_turns for world in self._worlds)
        self._train = self._world.dataset_source is not None or self._world.dataset is not None
        self._world.build_eval_dataset()
        self._has_eval = self._world.eval_dataset is not None
        self.evaluation_only = not self._train
        self._loop = Loop(self._world, deadline=deadline)
        self._specs = _specs(self._world.tool_defs or ())
        self._told = str(self._world.system_prompt or "")

    def task(self, split: Split, index: int) -> Task:
        """Return row number `index` of the split's data set, around and around."""
        _, places = self._rows(split)
        return replace(super().task(split, index), data={"row": places[index % len(places)]})

    def reset(self, task: Task) -> Observation:
        """Start an episode of the task's row; Python's global random numbers are the task's."""
        rows, _ = self._rows(task.split)
        random.seed(task.seed)
        self._seen: list[Any] = []
        found = self._loop.begin(rows[int(task.data["row"])])
        if isinstance(found, End):
            raise EnvironmentFault(
                f"environment {self.name}: got an end before the first turn ({found.state.get('stop_condition')}); "
                "leave this row out"
            )
        told = [_text(message.content) for message in found.messages if message.role == "system"]
        self._told = "\n\n".join(told)
        return self._find_new_messages(found)

    def step(self, action: Action) -> StepResult:
        """Say what the agent says; the package's loop goes on."""
        if action.error is not None:
            return StepResult(observation=f"Error: {action.error}", is_valid=False)
        known = {spec.name for spec in self._specs}
        unknown = [call.name for call in action.tool_calls if call.name not in known]
        errors = tuple(ToolError(tool=UNKNOWN_TOOL, cause="invalid_call") for _ in unknown)
        found = self._loop.reply(action)
        if isinstance(found, Question):
            return StepResult(
                observation=self._find_new_messages(found), is_valid=not unknown, tool_errors=errors
            )
        state = found.state
        last = state.get("final_env_response")
        is_cut = state.get("stop_condition") in CUT and (self.max_turns > 1 or bool(state.get("timed_out")))
        return StepResult(
            observation=_observation(last if isinstance(last, list) else []),
            reward=state["reward"],
            reward_terms=dict(state["metrics"] or {}),
            is_terminated=not is_cut,
            is_truncated=is_cut,
            is_success=state["reward"] >= self._world.pass_threshold,
            is_valid=not unknown,
            tool_errors=errors,
        )

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the environment's tools; a row may have tools of its own."""
        return self._specs

    def instructions(self) -> str:
        """Return the system messages of the row."""
        return self._told or super().instructions()

    def close(self) -> None:
        """End the episode and the environment."""
        self._loop.close()

    def _rows(self, split: Split) -> tuple[Any, Sequence[int]]:
        """Return the data set of `split`, and which of its rows are for it."""
        if self._has_eval and (split == "eval" or not self._train):
            rows = self._world.get_eval_dataset()
            return rows, range(len(rows))
        rows = self._world.get_dataset()
        if self._has_eval or len(rows) < 2:
            return rows, range(len(rows))
        places = range(len(rows))
        chosen = places[EVAL_SHARE - 1 :: EVAL_SHARE] or places[-1:]
        return rows, chosen if split == "eval" else [each for each in places if each not in chosen]

    def _find_new_messages(self, question: Question) -> Observation:
        """Return what is new in `question`: all of it at first, and where the prompt was built anew."""
        self._specs = _specs(question.tools)
        messages = [message for message in question.messages if message.role != "system"]
        known = len(self._seen)
        is_grown = known > 0 and messages[:known] == self._seen
        self._seen = messages
        # After what was known comes what the agent said itself.
        return _observation(messages[known + 1 :] if is_grown else messages)


def _loader(name: str) -> Any:
    """Return what loads the environment `name`.

    Raises:
        UsageError: this is no worker, the version is another one, or there is no such environment.
    """
    verifiers = package()
    found = tuple(int(part) for part in re.findall(r"\d+", version("verifiers"))[:3])
    if not OLDEST <= found < NEXT:
        raise UsageError(f"verifiers: got version {version('verifiers')}; it needs its API of 0.1: {INSTALL}")
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            f"environment verifiers/{name}: got a process with other work, whose signals the package would take; "
            f"write worker/verifiers/{name}?python=… for a process of its own"
        )
    if name.endswith(".py"):
        return file_member(Path(name), "load_environment", f"verifiers/{name}")

    def load(**settings: Any) -> Any:
        try:
            return verifiers.load_environment(name, **settings)
        except ValueError as error:
            if not isinstance(error.__cause__, ImportError):
                raise
            raise UsageError(
                f"environment of verifiers: got {name!r}, which is not installed ({error.__cause__}); "
                "install it with pip, or give a file with a load_environment"
            ) from error

    return load


def _specs(tools: Sequence[Any]) -> tuple[ToolSpec, ...]:
    """Return tools of the package as ours."""
    return tuple(
        ToolSpec(name=tool.name, description=tool.description, parameters=dict(tool.parameters))
        for tool in tools
    )


def _observation(messages: Sequence[Any]) -> Observation:
    """Return `messages` as the agent sees them: who speaks is said where it is more than one side."""
    roles = {message.role for message in messages}
    is_named = "assistant" in roles
    parts: list[Text | Image] = []
    for message in messages:
        head = f"{message.role}: " if is_named else ""
        for part in _parts(message.content):
            if isinstance(part, Text) and parts and isinstance(parts[-1], Text):
                parts[-1] = Text(text=f"{parts[-1].text}\n{head}{part.text}")
            else:
                parts.append(Text(text=f"{head}{part.text}") if isinstance(part, Text) else part)
            head = ""
    if any(isinstance(part, Image) for part in parts):
        return tuple(parts)
    return parts[0].text if parts and isinstance(parts[0], Text) else ""


def _parts(content: Any) -> list[Text | Image]:
    """Return the content of a message as texts and pictures."""
    if content is None or isinstance(content, str):
        return [Text(text=content or "")]
    found: list[Text | Image] = []
    for part in content:
        row = part if isinstance(part, dict) else part.model_dump()
        picture = PICTURE.fullmatch(str((row.get("image_url") or {}).get("url", "")))
        if picture is not None:
            found.append(Image(data=b64decode(picture[2]), media_type=picture[1]))
        else:
            found.append(Text(text=str(row["text"]) if "text" in row else json.dumps(row)))
    return found


def _text(content: Any) -> str:
    """Return the texts of the content of a message."""
    return "\n".join(part.text for part in _parts(content) if isinstance(part, Text))
