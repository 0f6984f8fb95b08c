"""The calls of one episode as a forest of tokens that only grows: what was asked, what was sampled, what became of it.

A call goes on from the node whose tokens are an exact prefix of what the engine sees. Messages only propose it: where a
client repeats a chat that ends in one of our answers, the new messages are appended to the very tokens of that answer;
where it says anything else, the chat is rendered anew and tokens are compared. Nothing here decides what is trained:
what was seen of a call stands in its facts, and `quintain.data.used` judges by them.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from quintain.data.used import refuse_newer
from quintain.engines.prefixes import common_length
from quintain.safety.guard import REFUSED, Guard
from quintain.serve.chat_types import (
    CLOSING,
    OPENING,
    THOUGHT,
    AssistantMessage,
    ChatRequest,
    canonical,
    digest_of,
    split_thinking,
    tools_key,
)
from quintain.serve.guarding import remove_refused
from quintain.text.chat import Chat, Conversation
from quintain.types import UNKNOWN_TOOL, Action, Completion, ToolCall, ToolError, Turn, as_content

Fork = Literal["", "root", "repeat", "branch", "sub-agent", "compaction", "stop", "thought", "rewrite"]
"""Why a call is not at the end of the stream that the call before it ended:

- ``""``: it is;
- ``root``: it is the first;
- ``repeat``: the same tokens were asked before;
- ``branch``: it goes on from an earlier answer, beside others that do;
- ``sub-agent``: system text or tools are new;
- ``compaction``: its history was rewritten, and holds what an earlier answer says;
- ``stop``: it goes on from an answer of which the client was handed the beginning alone: up to a text of `stop`, or its
  first call where several are not wanted. The chat is written anew without the rest, as it will be where it is served;
- ``thought``: it goes on from an answer whose thought its client did not give back. The chat is written anew without
  it, as the model's template has it and as it will be where it is served;
- ``rewrite``: its history was rewritten.
"""
REWRITTEN = frozenset({"compaction", "rewrite"})
"""Forks whose prompt is another than what was recorded, from some token on."""
SHOWN_TOKENS = 12
"""Tokens that are told of each side of a difference."""
NO_TOOLS = tools_key(())
SHORTEST_CARRIED = 2
"""Characters of an answer by which it can be found again in a later prompt."""


@dataclass(slots=True, kw_only=True)
class Node:
    """A call that was answered: the tokens that it adds to those of its parent, and what was seen of it."""

    number: int
    """place in the order of being committed"""
    parent: Node | None
    prompt_ids: tuple[int, ...]
    """given tokens after those of the parent; the whole prompt of a root"""
    whole: tuple[int, ...]
    """all tokens up to the end of what was sampled"""
    completion: Completion
    spoken: AssistantMessage
    history: tuple[AssistantMessage, ...]
    """the chat that it answers"""
    added: tuple[AssistantMessage, ...]
    """those of its messages that the parent did not have"""
    tools: str
    error: str | None
    """why calls of tools in it could not be read"""
    conversation: Conversation
    fork: Fork
    differs: Mapping[str, Any]
    """where its prompt first differs from an earlier call's tokens, if its history was rewritten"""
    after: int
    """number of calls that had been committed when it was dispatched"""
    digest: str
    """names everything up to here: parent, tokens, log-probs, policy and version"""
    lineage: str = ""
    """which agent of several asked, where the client says so"""
    kind: str = ""
    """``auxiliary`` where the client says so"""
    is_cut: bool = False
    """whether more was sampled than the client was handed: behind a text of `stop`, a second call, a refused one"""
    refused: tuple[str, ...] = ()
    """names of the tools whose calls a guard took out of it; `UNKNOWN_TOOL` for those that the client does not have"""
    num_deliveries: int = 0
    """times that a client read the whole answer"""
    num_retries: int = 0
    """times that a client marked a request as a retry of this one"""
    is_carried: bool = False
    """whether a later prompt holds what it says"""
    session: str = ""
    """the engine's stream that ends here, while it can be gone on from"""

    @property
    def is_open(self) -> bool:
        """Whether a call may go on from it: an answer that was cut, or is empty, closes its path."""
        return (
            self.completion.stop == "stop"
            and not self.is_cut
            and bool(self.spoken.text or self.spoken.calls or self.spoken.thinking)
        )


@dataclass(slots=True, kw_only=True)
class Plan:
    """A call that is about to be dispatched: what the engine is to see, and where it hangs."""

    asked: ChatRequest
    parent: Node | None
    prompt_ids: tuple[int, ...]
    """after the tokens of the parent"""
    whole: tuple[int, ...]
    conversation: Conversation
    history: tuple[AssistantMessage, ...]
    added: tuple[AssistantMessage, ...]
    fork: Fork
    differs: Mapping[str, Any]
    """where a rewritten history first differs from what was recorded; see `Recorder._difference`"""
    after: int
    repeat: int
    """times that the same tokens were asked before"""
    lineage: str = ""
    kind: str = ""


@dataclass(slots=True)
class Recorder:
    """The calls of one episode."""

    chat: Chat
    make_guard: Callable[[], Guard] | None = None
    """what makes the guard that takes calls out of answers"""
    nodes: list[Node] = field(default_factory=list[Node])
    num_pinned: int = 0
    """requests that asked for parameters of sampling which the server sets"""
    losses: list[str] = field(default_factory=list[str])
    """what could not be recorded; with any of these the episode is not to be learned from"""
    _after: dict[str, list[Node]] = field(default_factory=dict[str, "list[Node]"])
    """chat, with its last answer, → the nodes that it may stand for"""
    _asked: Counter[tuple[int, ...]] = field(default_factory=Counter[tuple[int, ...]])
    _identities: set[str] = field(default_factory=set[str])
    """what root chats begin with: system text and tools"""

    def plan(self, asked: ChatRequest, *, lineage: str = "", kind: str = "") -> Plan:
        """Return where the call that `asked` is hangs, and what the engine is to see.

        Raises:
            ModelError: the chat template refuses the chat.
        """
        self.num_pinned += bool(asked.pinned)
        tools = tools_key(asked.tools)
        self._note_carried(asked.messages)
        node, num_known = self._find_repeated(asked, tools)
        if node is not None:
            conversation = node.conversation.branch()
            added = asked.messages[num_known:]
            prompt = conversation.prompt([each.message() for each in added])
            if not prompt.starts_segment:
                return self._plan_node(asked, node, prompt.token_ids, conversation, added, lineage, kind)
            whole = prompt.token_ids
        else:
            conversation = self.chat.conversation(asked.tools)
            whole = conversation.prompt([each.message() for each in asked.messages]).token_ids
        parent = self._longest_prefix(whole, tools)
        given = whole if parent is None else whole[len(parent.whole) :]
        return self._plan_node(asked, parent, given, conversation, asked.messages, lineage, kind)

    def commit(self, plan: Plan, completion: Completion, *, session: str = "") -> Node:
        """Add what was sampled as a node; `session` is the engine's stream that it ends."""
        asked, text = plan.asked, self.chat.text(completion.token_ids)
        text, stopped_by, completion = self._cut(text, asked.stop, completion)
        number = len(self.nodes)
        spoken, error = self._read(text, number, asked, plan.conversation.prefix)
        is_cut = bool(stopped_by)
        if asked.one_call and len(spoken.calls) > 1:
            spoken, is_cut = replace(spoken, calls=spoken.calls[:1], names=spoken.names[:1]), True
        refused: tuple[str, ...] = ()
        if self.make_guard is not None and spoken.calls:
            spoken, refused = remove_refused(self.make_guard, plan.history, spoken)
            known = {tool.name for tool in asked.tools}
            refused = tuple(name if name in known else UNKNOWN_TOOL for name in refused)
        assert plan.parent is None or plan.whole[: len(plan.parent.whole)] == plan.parent.whole, (
            "a parent is a prefix"
        )
        before = "" if plan.parent is None else plan.parent.digest
        digest = node_digest(before, number, plan.prompt_ids, completion)
        is_open = self.chat.reads_plainly and plan.conversation.prefix.rstrip().endswith(OPENING)
        spoken = with_thoughts_apart(spoken, digest if asked.seals_thoughts else "", is_open=is_open)
        node = Node(
            number=number,
            parent=plan.parent,
            prompt_ids=plan.prompt_ids,
            whole=plan.whole + completion.token_ids,
            completion=completion,
            spoken=spoken,
            history=plan.history,
            added=plan.added,
            tools=tools_key(asked.tools),
            error=error,
            conversation=plan.conversation,
            fork=plan.fork,
            differs=plan.differs,
            after=plan.after,
            digest=digest,
            lineage=plan.lineage,
            kind=plan.kind,
            is_cut=is_cut or bool(refused),
            refused=refused,
            session="" if is_cut or refused else session,
        )
        plan.conversation.record(completion.token_ids, names=spoken.names)
        self.nodes.append(node)
        if node.is_open:
            self._after.setdefault(chat_key(node.tools, (*plan.history, spoken)), []).append(node)
        return node

    def turns(self) -> tuple[Turn, ...]:
        """Return the calls as the turns of a trajectory, each with what was seen of it."""
        return tuple(map(turn_of, self.nodes))

    def find(self, answer: str) -> Node | None:
        """Return the node whose answer has the id `answer`."""
        return next((node for node in self.nodes if node.digest == answer), None)

    def _find_repeated(self, asked: ChatRequest, tools: str) -> tuple[Node | None, int]:
        """Return the node whose chat and answer the messages repeat furthest, and how many messages that are."""
        keys = chat_keys(tools, asked.messages) if self._after else []
        for count in range(len(asked.messages) - 1, 0, -1):
            if asked.messages[count - 1].role != "assistant" or not keys:
                continue
            found = self._after.get(keys[count], [])
            if found:
                names = asked.messages[count - 1].names
                named = [node for node in found if node.spoken.names == names] or found
                return max(named, key=lambda node: (node.num_deliveries > 0, node.number)), count
        return None, 0

    def _longest_prefix(self, whole: tuple[int, ...], tools: str) -> Node | None:
        """Return the node whose tokens are the longest exact prefix of `whole`, in a chat with the same tools."""
        best: Node | None = None
        for node in self.nodes:
            length = len(node.whole)
            if not node.is_open or node.tools != tools or length >= len(whole):
                continue
            if (best is None or length > len(best.whole)) and whole[:length] == node.whole:
                best = node
        return best

    def _plan_node(
        self,
        asked: ChatRequest,
        parent: Node | None,
        given: tuple[int, ...],
        conversation: Conversation,
        added: tuple[AssistantMessage, ...],
        lineage: str,
        kind: str,
    ) -> Plan:
        whole = given if parent is None else parent.whole + given
        identity = digest_of(
            tools_key(asked.tools), *(each.text for each in asked.messages if each.role == "system")
        )
        fork = self._cause(asked, parent, whole, identity)
        differs = self._difference(whole) if fork in REWRITTEN else {}
        self._identities.add(identity)
        repeat = self._asked[whole]
        self._asked[whole] += 1
        return Plan(
            asked=asked, parent=parent, prompt_ids=given, whole=whole, conversation=conversation,
            history=asked.messages, added=added, fork=fork, differs=differs, after=len(self.nodes), repeat=repeat,
            lineage=lineage, kind=kind,
        )  # fmt: skip

    def _cause(self, asked: ChatRequest, parent: Node | None, whole: tuple[int, ...], identity: str) -> Fork:
        """Return why a call is not at the end of the newest stream."""
        if self._asked[whole]:
            return "repeat"
        if parent is not None:
            return "branch" if any(node.parent is parent for node in self.nodes) else ""
        if not self._identities:
            return "root"
        if identity not in self._identities:
            return "sub-agent"
        if any(goes_on_from_cut(asked.messages, node) for node in self.nodes):
            return "stop"
        if any(goes_on_without_thought(asked.messages, node) for node in self.nodes):
            return "thought"
        texts = [each.text for each in asked.messages if each.role != "assistant"]
        return "compaction" if any(says(texts, node) for node in self.nodes) else "rewrite"

    def _difference(self, whole: tuple[int, ...]) -> Mapping[str, Any]:
        """Return the call whose tokens `whole` shares furthest, the first token that differs, and the text there."""
        shared = [common_length(node.whole, whole) for node in self.nodes]
        if not shared:
            return {}
        at = max(shared)
        node = self.nodes[max(place for place, length in enumerate(shared) if length == at)]
        was, now = (self.chat.text(ids[at : at + SHOWN_TOKENS]) for ids in (node.whole, whole))
        return {"call": node.number, "token": at, "was": was, "now": now}

    def _note_carried(self, messages: Sequence[AssistantMessage]) -> None:
        """Note which answers the chat `messages` holds in what others say."""
        texts = [each.text for each in messages if each.role != "assistant"]
        for node in self.nodes:
            node.is_carried = node.is_carried or says(texts, node) or goes_on_from_cut(messages, node)

    def _cut(self, text: str, stops: Sequence[str], completion: Completion) -> tuple[str, str, Completion]:
        """Return text and completion up to the first of `stops`, and which that is.

        Sampled tokens go up to the one that completes the stop; the text ends before it.
        """
        places = [(text.find(stop), stop) for stop in stops if stop in text]
        if not places:
            return text, "", completion
        at, stop = min(places)
        ids = completion.token_ids
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if stop in self.chat.text(ids[:middle]) else (middle + 1, high)
        spans = tuple(span for span in completion.version_spans if span[0] < low)
        cut = Completion(
            token_ids=ids[:low],
            logprobs=completion.logprobs[:low],
            stop="length" if low < len(ids) else completion.stop,
            policy_version=spans[-1][1] if spans else completion.policy_version,
            policy=completion.policy,
            version_spans=spans if len(spans) > 1 else (),
        )
        return text[:at], stop, cut

    def _read(
        self, text: str, number: int, asked: ChatRequest, prefix: str
    ) -> tuple[AssistantMessage, str | None]:
        """Return the answer that `text` is, and why calls in it could not be read.

        Where words have marks about them, as in channels, the client is handed the words; a thought stands before them
        in the tags that all clients know.
        """
        is_plain = self.chat.reads_plainly
        if is_plain and not asked.tools:
            return AssistantMessage(role="assistant", text=text), None
        answer = self.chat.read(text, prefix=prefix, tools=asked.tools)
        broken = next((call for call in answer.calls if call.arguments is None or not call.name), None)
        has_calls = bool(answer.calls and asked.tools) and broken is None
        if is_plain:
            said = text[: max(0, answer.calls[0].span[0])] if has_calls else text
        elif answer.calls and not has_calls:
            said = text
        else:
            closing = CLOSING if answer.is_reasoning_complete else ""
            said = (f"{OPENING}{answer.reasoning}{closing}" if answer.reasoning else "") + answer.content
        if not has_calls:
            problem = broken.problem if broken is not None and asked.tools else None
            return AssistantMessage(role="assistant", text=said), problem
        calls = tuple(
            ToolCall(name=call.name, arguments=call.arguments or {}, id=call.id) for call in answer.calls
        )
        names = tuple(call.id or f"call_{number}_{place}" for place, call in enumerate(calls))
        return AssistantMessage(role="assistant", text=said.rstrip(), calls=calls, names=names), None


def with_thoughts_apart(spoken: AssistantMessage, seal: str, *, is_open: bool = False) -> AssistantMessage:
    """Return `spoken` with the thoughts in front of its text apart from it, under the opaque state `seal`.

    The prompt has begun one where it `is_open`.
    """
    thinking, text = split_thinking(spoken.text, is_open=is_open)
    if not thinking:
        return spoken
    return AssistantMessage(
        role=spoken.role, text=text, calls=spoken.calls, names=spoken.names, thinking=thinking, opaque=seal
    )


def turn_of(node: Node) -> Turn:
    """Return a call as a turn of a trajectory, with what was seen of it."""
    continues = node.parent is not None and node.parent.number == node.number - 1
    given = node.prompt_ids if continues else node.whole[: len(node.whole) - len(node.completion.token_ids)]
    return Turn(
        observation=as_content("\n".join(each.text for each in node.added if each.role != "assistant")),
        prompt_ids=given,
        completion=node.completion,
        action=Action(text=node.spoken.whole_text(), tool_calls=name_calls(node.spoken), error=node.error),
        is_valid=node.error is None,
        starts_segment=not continues,
        tool_errors=tuple(ToolError(tool=name, cause="refused") for name in node.refused),
        facts=facts_of(node),
    )


def chat_key(tools: str, messages: Sequence[AssistantMessage]) -> str:
    """Return what two equal chats have in common."""
    return chat_keys(tools, messages)[-1]


def chat_keys(tools: str, messages: Sequence[AssistantMessage]) -> list[str]:
    """Return the `chat_key` of each beginning of `messages`, the empty one first, in one pass."""
    total, keys = hashlib.blake2b(digest_size=16), list[str]()
    for text in (tools, *(each.key() for each in messages)):
        data = text.encode("utf-8", "surrogatepass")
        total.update(len(data).to_bytes(8, "little") + data)
        keys.append(total.hexdigest())
    return keys


def goes_on_from_cut(messages: Sequence[AssistantMessage], node: Node) -> bool:
    """Whether `messages` hold the part of the answer of `node` that its client was handed, where that was not all."""
    if not node.is_cut:
        return False
    own = node.spoken.key()
    return any(each.role == "assistant" and each.key() == own for each in messages)


def goes_on_without_thought(messages: Sequence[AssistantMessage], node: Node) -> bool:
    """Whether `messages` hold what `node` answered, but for what it thought before."""
    if not node.spoken.thinking:
        return False
    bare = replace(node.spoken, thinking="", opaque="").key()
    return any(each.role == "assistant" and each.key() == bare for each in messages)


def says(texts: Sequence[str], node: Node) -> bool:
    """Whether one of `texts` holds what `node` answered."""
    said = node.spoken.text.strip()
    return len(said) >= SHORTEST_CARRIED and any(said in text for text in texts)


def node_digest(before: str, number: int, prompt_ids: Sequence[int], completion: Completion) -> str:
    """Return 32 hexadecimal digits that name a node: its parent's, its number, and all that the engine saw and said."""
    numbers = struct.pack(f"<{len(completion.logprobs)}d", *completion.logprobs).hex()
    spans = completion.version_spans or ((0, completion.policy_version),)
    return digest_of(
        before, str(number), canonical(list(prompt_ids)), canonical(list(completion.token_ids)), numbers,
        canonical([completion.policy, spans]),
    )  # fmt: skip


def name_calls(spoken: AssistantMessage) -> tuple[ToolCall, ...]:
    """Return the calls of an answer with the ids that the client knows them by."""
    if len(spoken.names) != len(spoken.calls):
        return spoken.calls
    return tuple(replace(call, id=name) for call, name in zip(spoken.calls, spoken.names, strict=True))


def facts_of(node: Node) -> Mapping[str, Any]:
    """Return what was seen of a call, as JSON data; what is usual is left out."""
    facts: dict[str, Any] = {
        "call": node.number,
        "after": node.after,
        "delivery": "whole" if node.num_deliveries else "broken",
        "has_tools": node.tools != NO_TOOLS,
        "digest": node.digest,
    }
    if len(node.added) > 1:
        facts["given"] = [
            {"role": each.role, "content": each.text}
            | ({THOUGHT: each.thinking} if each.thinking else {})
            | (
                {"tool_call_id": each.names[0]}
                if each.role == "tool" and each.names and each.names[0]
                else {}
            )
            for each in node.added
        ]
    if node.parent is not None:
        facts["parent"] = node.parent.number
    if node.fork:
        facts["fork"] = node.fork
    if node.differs:
        facts["differs"] = dict(node.differs)
    if node.is_carried:
        facts["carried"] = True
    if node.refused:
        facts[REFUSED] = list(node.refused)
    if node.num_retries:
        facts["retries"] = node.num_retries
    for name, value in (("kind", node.kind), ("lineage", node.lineage)):
        if value:
            facts[name] = value
    return facts


def find_changed(turns: Sequence[Turn]) -> list[int]:
    """Return the turns that are not what was recorded, by number: tokens, log-probs, policy, version or parent differ.

    The digest of a call names what the engine saw and said in it, and the digest of the call that it goes on from, so
    a change is found in the call itself and in all that go on from it. Turns without a digest are not looked at.

    Raises:
        DataError: they were recorded by a newer version.
    """
    refuse_newer(turns)
    whole: dict[int, tuple[int, ...]] = {}
    digests: dict[int, str] = {}
    changed: list[int] = []
    for place, turn in enumerate(turns):
        if "digest" not in turn.facts:
            continue
        number, parent = int(turn.facts["call"]), turn.facts.get("parent")
        before = whole.get(parent, ()) if parent is not None else ()
        prompt = turn.prompt_ids
        is_prefix = not turn.starts_segment or prompt[: len(before)] == before
        given = prompt[len(before) :] if turn.starts_segment else prompt
        whole[number] = (*before, *given, *turn.completion.token_ids)
        digests[number] = node_digest(
            digests.get(parent, "") if parent is not None else "", number, given, turn.completion
        )
        if digests[number] != turn.facts["digest"] or not is_prefix:
            changed.append(place)
    return changed
