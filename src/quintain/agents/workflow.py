"""A workflow that a model follows line by line (AutoFlow, arXiv 2407.12821; CoRE, 2405.06907).

    Ask ::: process ::: Ask for the name. ::: next: Check
    Check ::: decision ::: Is the order theirs? ::: yes: Do; no: Refuse
    Do ::: process ::: Do what is asked for. ::: next: End
    Refuse ::: process ::: Refuse, and say why. ::: next: End
    End ::: terminal ::: Say goodbye. :::

A line is a block: its name, its type, what is to be done, and where it goes on. A `process` has one way on and is one
action; a `decision` has two or more, by keys of which the model says one, in a turn in which nothing is done; a
`terminal` has none and holds for the rest of the episode. Names are the same whatever their case. A text that is no
workflow is refused with what is wrong: a name twice, a block that is never reached or from which no terminal is, a way
to nowhere, too few or too many ways, decisions that go around without an action. So every workflow that is followed
acts at least once in as many turns as it has blocks, and the environment's limit of turns ends it.

Differences to the paper: the code that came with it refuses a way to nowhere alone, and lets a name that stands twice
overwrite the first; an answer that names no key takes the last way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from quintain.agents.deliberation import Deliberation, Words, with_words
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Observation

MAX_BLOCKS, MAX_TEXT = 24, 300
"""Blocks of a workflow, and characters of what one of them says."""
PROCESS, DECISION, TERMINAL = KINDS = ("process", "decision", "terminal")
SPLIT = ":::"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A line: ``Block(name="ask", kind="process", says="Ask for the name.", ways={"next": "check"})``."""

    name: str
    kind: str
    says: str
    ways: Mapping[str, str]
    """key → name of the block that comes next"""


@dataclass(frozen=True, slots=True)
class Workflow:
    """Blocks by name, of which the first begins; made by `read_workflow`, which refuses what is none."""

    blocks: Mapping[str, Block]

    @property
    def first(self) -> Block:
        """The block that begins."""
        return next(iter(self.blocks.values()))

    @property
    def text(self) -> str:
        """The workflow as it is written: ``read_workflow(flow.text) == flow``."""
        lines = (
            f"{each.name} {SPLIT} {each.kind} {SPLIT} {each.says} {SPLIT} "
            + "; ".join(f"{key}: {name}" for key, name in each.ways.items())
            for each in self.blocks.values()
        )
        return "\n".join(line.rstrip() for line in lines)

    def pass_on(self, block: Block, said: str = "") -> Block:
        """Return the block after `block`, at which `said` was answered; a terminal stays."""
        if not block.ways:
            return block
        words = re.findall(r"\w+", said.casefold())
        key = next((key for key in block.ways if key in words), list(block.ways)[-1])
        return self.blocks[block.ways[key]]


def read_workflow(text: str) -> Workflow:
    """Return the workflow that `text` writes.

    Raises:
        UsageError: it is none; the error says what is wrong.
    """
    blocks: dict[str, Block] = {}
    for number, line in enumerate(text.strip().splitlines(), 1):
        if not line.strip():
            continue
        block = _read_block(line, number)
        if block.name in blocks:
            raise _refuse(f"{block.name} twice", "give each block a name of its own")
        blocks[block.name] = block
    if not 0 < len(blocks) <= MAX_BLOCKS:
        raise _refuse(f"{len(blocks)} blocks", f"write 1 to {MAX_BLOCKS}")
    for block in blocks.values():
        for name in block.ways.values():
            if name not in blocks:
                raise _refuse(f"{block.name}, which goes on to {name!r:.40}", "name a block that is there")
    flow = Workflow(blocks)
    reached = _reach(flow, {flow.first.name})
    for name in blocks:
        if name not in reached:
            raise _refuse(f"{name}, which is never reached", "let a block go on to it, or leave it out")
        if not any(blocks[each].kind == TERMINAL for each in _reach(flow, {name})):
            raise _refuse(f"{name}, from which no terminal is reached", "let it come to one")
        if blocks[name].kind == DECISION and name in _reach(flow, set(blocks[name].ways.values()), DECISION):
            raise _refuse(f"{name}, a decision that comes back without an action", "put a process between")
    return flow


def _reach(flow: Workflow, names: set[str], through: str = "") -> set[str]:
    """Return `names` and what is reached from them; `through` blocks of one kind alone, where that is given."""
    found, new = set[str](), names
    while new := new - found:
        found |= new
        passed = [flow.blocks[name] for name in new if through in ("", flow.blocks[name].kind)]
        new = {each for block in passed for each in block.ways.values()}
    return found


def _read_block(line: str, number: int) -> Block:
    """Return the block that `line` writes."""
    parts = [part.strip() for part in line.split(SPLIT)]
    if len(parts) not in (3, 4):
        raise _refuse(
            f"line {number} with {len(parts)} parts", f"write NAME {SPLIT} TYPE {SPLIT} WHAT {SPLIT} WAYS"
        )
    name, kind, says = parts[0].casefold(), parts[1].casefold(), parts[2]
    if not name or not says or len(name) > MAX_TEXT or len(says) > MAX_TEXT:
        raise _refuse(
            f"line {number} with {'no' if not (name and says) else 'too long a'} text", "say it shortly"
        )
    if kind not in KINDS:
        raise _refuse(f"{name} of type {kind!r:.40}", f"use {', '.join(KINDS)}")
    ways: dict[str, str] = {}
    for way in (each for each in (parts[3] if len(parts) == 4 else "").split(";") if each.strip()):
        key, colon, to = (part.strip().casefold() for part in way.partition(":"))
        if not (colon and to and re.fullmatch(r"\w+", key)) or key in ways:
            raise _refuse(
                f"{name} with the way {way.strip()!r:.40}", "write KEY: NAME, each key a word, and once"
            )
        ways[key] = to
    wanted = {PROCESS: "one way on", DECISION: "two or more", TERMINAL: "none"}[kind]
    if not {PROCESS: len(ways) == 1, DECISION: len(ways) > 1, TERMINAL: not ways}[kind]:
        raise _refuse(f"{name}, a {kind} with {len(ways)} ways on", f"give it {wanted}")
    return Block(name=name, kind=kind, says=says, ways=ways)


def _refuse(what: str, instead: str) -> UsageError:
    return UsageError(f"workflow: got {what}; {instead}")


@dataclass(frozen=True, slots=True)
class Follow:
    """A harness that follows a workflow: ``workflow?file=flow.txt``."""

    agent: Agent
    chat: Chat
    file: str = ""
    """The workflow's file, as a run of `auto_flow` keeps one; empty: none is followed."""
    max_tokens: int = 8
    """Tokens of the answer at a decision."""
    flow: Workflow | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Read the workflow, where a file is named."""
        if self.file:
            if not Path(self.file).is_file():
                raise UsageError(f"workflow: got {self.file!r}, which is no file; name one that is there")
            object.__setattr__(self, "flow", read_workflow(Path(self.file).read_text(encoding="utf-8")))

    def open(self, brief: Brief) -> FollowSession:
        """See `Agent.open`."""
        return FollowSession(self, brief)


def follow_workflow(agent: Agent, chat: Chat, flow: Workflow) -> Follow:
    """Return `agent` as it follows `flow`."""
    made = Follow(agent, chat)
    object.__setattr__(made, "flow", flow)
    return made


class FollowSession(Deliberation):
    """An episode of `Follow`."""

    def __init__(self, settings: Follow, brief: Brief) -> None:
        """Begin at the first block."""
        super().__init__(settings.agent, brief)
        self._flow, self._words = settings.flow, Words(settings.chat, settings.max_tokens)
        self._block = None if self._flow is None else self._flow.first
        self._legal = brief.legal_actions

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`: what the block says stands below."""
        self._legal = legal_actions
        if self._block is None:
            return super().observe(observation, legal_actions)
        return self._ask(with_words(observation, block_text(self._block)))

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: the answer at a decision, or the action."""
        block = self._block
        if block is None:
            return self._inner_read(completion)
        if block.kind == DECISION:
            self._inner_ends(completion)
            said = self._words.read(completion)
            self._block = cast(Workflow, self._flow).pass_on(block, said)
            self._next = self._ask(block_text(self._block))
            return Action(text=said)
        action = self._inner_read(completion)
        if self._next is None:
            self._block = cast(Workflow, self._flow).pass_on(block)
        return action

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`; who shows how it is done knows no workflow and takes the first way."""
        block = self._block
        if block is not None and block.kind == DECISION:
            return self._words.write(next(iter(block.ways)))
        return self._inner.write(action)

    def _ask(self, shown: Observation) -> Prompt:
        """Return the prompt that shows the block `shown`."""
        prompt = self._inner.observe(shown, self._legal)
        block = cast(Block, self._block)
        if block.kind != DECISION:
            return prompt
        return self._words.ask(prompt, "decision", shown if isinstance(shown, str) else block_text(block))


def block_text(block: Block) -> str:
    """Return what the model is told at `block`."""
    if block.kind == DECISION:
        return f"Decide: {block.says} Answer with one word: {', '.join(block.ways)}."
    return f"Step: {block.says}"
