"""How likely a model finds what was said in episodes: perplexity under a model in a folder, a run's, or an endpoint's.

PPL = exp(-1/N Σ log p(token | all before it)) over the N tokens of the answers. A model in a folder reads the tokens of
an episode where its tokenizer is theirs, and else the same conversation in tokens and template of its own. An endpoint,
whose template is not known, reads plain text: ``User: …``, ``Assistant: …``, a message a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from quintain.agents.transcripts import Rules, Transcriber
from quintain.data.messages import write_call
from quintain.data.pipeline import as_example, name_of
from quintain.data.records import Record
from quintain.data.samples import imitation_samples
from quintain.data.stages import perplexity_of
from quintain.data.thoughts import whole_text
from quintain.engines.build import build_engine
from quintain.engines.chat_client import ChatSpec, is_endpoint
from quintain.engines.settings import EngineSettings
from quintain.errors import DataError
from quintain.learning.saved import find_model
from quintain.models.load import load
from quintain.pipelines.episode_sources import EpisodeSet, Origin, harness_writer
from quintain.processes.http_json import HttpTrouble
from quintain.text.chat import Chat
from quintain.types import Trajectory
from quintain.warm_start.demonstrations import same_tokens


def perplexity_under(by: str, given: EpisodeSet, asked: str) -> Callable[[Trajectory], float]:
    """Return the perplexity of an episode under the model `by`: a folder, a run, a hub id, or an address.

    Raises:
        ModelError: there is no such model.
        UsageError: the address is none.
        DataError: the endpoint gives no log-probs of a prompt, when an episode is asked for.
    """
    return by_endpoint(by, given, asked) if is_endpoint(by) else by_model(find_model(by, given.root), given)


def by_model(folder: str, given: EpisodeSet) -> Callable[[Trajectory], float]:
    """Return the perplexity of an episode under the model in `folder`."""
    loaded = load(folder)
    engine = build_engine(EngineSettings(), loaded.model, loaded.tokenizer)
    chat = Chat(loaded.tokenizer)
    writers: dict[str, Transcriber | None] = {}

    def writer_of(origin: Origin) -> Transcriber | None:
        """Return what writes the conversations of `origin` in tokens of the model; None where they are."""
        if same_tokens(origin.chat.tokenizer, loaded.tokenizer):
            return None
        if origin.transcriber is not None:
            return Transcriber(chat, Rules())
        return harness_writer(chat, origin.environment, origin.harness)

    def score(trajectory: Trajectory) -> float:
        example = as_example(trajectory)
        origin = given.origin(example)
        if origin.name not in writers:
            writers[origin.name] = writer_of(origin)
        counted = set(range(len(trajectory.turns)))
        if (writer := writers[origin.name]) is not None:
            record = given.conversation(example)
            answers = [n for n, each in enumerate(record.said) if n and each.message.role == "assistant"]
            own = set(given.answers(example, record))
            counted = {number for number, place in enumerate(answers) if place in own}
            trajectory = replace(trajectory, turns=writer.turns(record))
        streams = imitation_samples([trajectory])
        said = engine.score([sample.token_ids.tolist() for sample in streams])
        return perplexity_of(
            [
                logprob
                for sample, logprobs in zip(streams, said, strict=True)
                for logprob, turn in zip(logprobs, sample.turn_id.tolist(), strict=True)
                if turn in counted
            ],
            name_of(trajectory),
        )

    return score


def by_endpoint(by: str, given: EpisodeSet, asked: str) -> Callable[[Trajectory], float]:
    """Return the perplexity of an episode's text under the model at the address `by`."""
    client = ChatSpec.read(by, asked=f"by of {asked}").client()

    def score(trajectory: Trajectory) -> float:
        example = as_example(trajectory)
        record = given.conversation(example)
        text, spans = plain(record, given.answers(example, record))
        try:
            found = client.text_logprobs(text)
        except HttpTrouble as trouble:
            raise DataError(
                f"perplexity of {name_of(trajectory)} at {client.url}: got {trouble.got} for POST /completions with "
                "echo and logprobs; give an endpoint that returns the log-probs of a prompt (vLLM does), or the "
                "folder of a model"
            ) from trouble
        own = [value for place, value in found if any(begin <= place < end for begin, end in spans)]
        return perplexity_of(own, name_of(trajectory))

    return score


def plain(record: Record, answers: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
    """Return a conversation as plain text, and from where to where the `answers` (places of messages) stand in it.

    Example: ``User: 2 + 2?`` and the answer ``4`` → ``"User: 2 + 2?\\nAssistant: 4\\n"`` and (23, 26).
    """
    text, spans = "", list[tuple[int, int]]()
    for place, each in enumerate(record.said):
        message = each.message
        calls = [json.dumps(write_call(call)["function"], ensure_ascii=False) for call in message.tool_calls]
        words = "\n".join([part for part in (whole_text(message), *calls) if part])
        text += f"{message.role.capitalize()}:"
        begin = len(text)
        text += f" {words}\n"
        if place in answers:
            spans.append((begin, len(text)))
    return text, spans
