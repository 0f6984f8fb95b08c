"""The actor that plays episodes: environments and harnesses in threads of one process, and no model."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, cast

from quintain.agents.catalog import build
from quintain.agents.protocol import Agent
from quintain.distributed.connection import Files, write_files
from quintain.distributed.replicas import Link, Replicas
from quintain.distributed.version import check_version
from quintain.engines.protocol import Engine
from quintain.environments.boundary import ask
from quintain.environments.catalog import find
from quintain.rollout.collect import Rollout
from quintain.rollout.request import EpisodeRequest, Limits
from quintain.text.chat import Chat
from quintain.types import Failure, Trajectory

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PLAIN = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes of tokenizers that are what their files say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """The harness of a policy: ``Harness(spec="react", temperature=1.0, max_tokens=128)``."""

    spec: str
    temperature: float
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What episodes are played in and by whom; a worker keeps what it has built for one."""

    environment: str
    """its spec; a worker builds it by itself"""
    harnesses: tuple[tuple[str, Harness], ...]
    """by policy"""
    seats: tuple[tuple[str, str], ...]
    limits: Limits
    max_staleness: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """An episode, and what broke while it was played."""

    trajectory: Trajectory
    retries: tuple[tuple[str, int, Failure], ...]
    broken: tuple[Failure, ...]
    num_attempts: int


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer in `folder`; without torch, which takes long to import, where it is of no special class."""
    named = json.loads((folder / "tokenizer_config.json").read_bytes()).get("tokenizer_class")
    if named in PLAIN:
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(folder)
    from quintain.models.load import load_tokenizer

    return load_tokenizer(folder)


class Worker:
    """Plays the episodes that it is asked for, as many at once as it has threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count()
        self._idle: dict[Scene, list[Rollout]] = {}
        self._name = ""
        self._links: Mapping[str, Link] = {}
        self._chats: dict[str, Chat] = {}

    def open(self, version: str, name: str, links: Mapping[str, Link], tokenizers: Files) -> None:
        """Take `links` to the engines by policy, and `tokenizers`, whose files are called policy/name.

        Raises:
            EngineFault: the driver is of another version.
        """
        check_version(version, f"the worker {name}")
        self._name, self._links = name, links
        with tempfile.TemporaryDirectory(prefix="quintain-worker-") as place:
            for policy in links:
                own = {
                    file.partition("/")[2]: content
                    for file, content in tokenizers.items()
                    if file.startswith(f"{policy}/")
                }
                self._chats[policy] = Chat(read_tokenizer(write_files(own, Path(place) / policy)))

    def play(self, scene: Scene, request: EpisodeRequest, limits: Limits) -> Played:
        """Return the episode that `request` asks for.

        Raises:
            QuintainError: it cannot be played here, such as an environment whose package is missing.
        """
        with self._lock:
            idle = self._idle.setdefault(scene, [])
            rollout = idle.pop() if idle else None
        rollout = rollout or self._build(scene)
        pool = rollout.pool
        num_before, num_broken = pool.num_attempts, len(pool.broken)
        rollout.retries.clear()
        bounds = replace(limits, max_failure_share=1.0, max_broken_share=1.0)  # the driver sees all of them
        with closing(rollout.play([request], limits=bounds)) as episodes:
            (trajectory,) = episodes
        played = Played(
            trajectory=trajectory,
            retries=tuple(rollout.retries),
            broken=tuple(pool.broken[num_broken:]),
            num_attempts=pool.num_attempts - num_before,
        )
        with self._lock:
            self._idle[scene].append(rollout)
        return played

    def close(self) -> None:
        """Close the environments."""
        with self._lock:
            rollouts = [rollout for idle in self._idle.values() for rollout in idle]
            self._idle.clear()
        for rollout in rollouts:
            rollout.close()

    def _build(self, scene: Scene) -> Rollout:
        make_environment = find(scene.environment)
        agents: dict[str, Agent] = {}
        for policy, harness in scene.harnesses:
            chat = self._chats[policy]
            agents[policy] = ask(
                make_environment,
                lambda environment, harness=harness, chat=chat: build(
                    harness.spec,
                    chat,
                    environment,
                    temperature=harness.temperature,
                    max_tokens=harness.max_tokens,
                ),
            )
        user = f"{self._name}.{next(self._numbers)}"
        engines = {policy: cast(Engine, Replicas(self._links[policy], user=user)) for policy in agents}
        limits = replace(scene.limits, max_failure_share=1.0, max_broken_share=1.0, concurrency=1)
        return Rollout(
            agents,
            make_environment,
            engines,
            seats=dict(scene.seats),
            limits=limits,
            max_staleness=scene.max_staleness,
        )
