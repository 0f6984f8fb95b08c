"""Where a run's policy comes from: a folder, a hub id, or a tiny model made for the environment; and its warm start.

A tiny model knows no language: its tokenizer is trained on what the environment writes, its weights are drawn from
the seed. Before training it may imitate demonstrations, so that it knows how an action is written. The teacher is the
environment's expert; where there is none, random valid actions teach the form of an action and nothing about the
task. Few epochs over many demonstrations beat many over few: both solve as many tasks, but the first still tries
things, and learns from them. The policy a run starts from is saved in the run, so that resuming and evaluating need
nothing from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl

import torch

from quintain.agents.catalog import AUTO, build
from quintain.agents.external_agent import Outside
from quintain.agents.protocol import Agent
from quintain.curriculum.streams import TaskStream, draw_held_out
from quintain.data.pack import micro_batches
from quintain.data.pipeline import PipelineResult, example_samples
from quintain.data.samples import imitation_samples
from quintain.environments.baselines import find_range_text, random_action
from quintain.environments.boundary import ask, check_tools, has_expert, spec_of, tasks_of
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.environments.protocol import Environment, Expert, Factory
from quintain.errors import ConfigError, UsageError, suggestion
from quintain.learning.learner import Learner, Optimization
from quintain.learning.pass_size import fit_pass
from quintain.learning.saved import load_policy
from quintain.learning.sections import DataSection, ModelSection
from quintain.learning.train_config import USUAL_DEMONSTRATIONS, TrainConfig
from quintain.learning.update import epoch_batch, num_batches
from quintain.losses.imitation import imitation
from quintain.models.adapters import add_lora, has_adapters, merge
from quintain.models.device import find_device
from quintain.models.families import NO_LIMIT
from quintain.models.precision import storage_dtype
from quintain.models.tiny import COPIES, SIZES, build_tiny
from quintain.rollout.collect import Limits, OnEpisode, Rollout
from quintain.rollout.progress import Display
from quintain.rollout.samplers import Demonstrator
from quintain.serve.agent_source import taught_episodes
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.text.parse import write_tool_calls
from quintain.text.tokenizer import SPANS, train_tokenizer
from quintain.types import Action, Observation, Task, Trajectory, derive_seed
from quintain.warm_start.corpus import corpus
from quintain.warm_start.demonstrations import Demonstrations, check_digest, load_data
from quintain.warm_start.run_notes import before_imitation

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast


FUMBLES = 0.15
"""Share of a form teacher's tool calls that cannot be read."""
DEMONSTRATIONS_PER_UPDATE = 8
IMITATION = "imitation"
"""Layers of LoRA that a warm start trains."""
RATE_TIMES_WIDTH, GENTLE = 0.256, 0.25
"""Learning rate of imitation by a model one number wide; and the share of it at which a model keeps what its heads
began with (`quintain.models.tiny.find_same`): at the whole of it, that is gone after 40 updates."""


FITTING = "auto"
"""The new model whose size is as the environment needs it."""


@dataclass(frozen=True, slots=True)
class NewModel:
    """What a model made from nothing is to be: ``NewModel("mini", "words")``, written ``mini?tokens=words``."""

    size: str
    """One of `quintain.models.tiny.SIZES`; or `FITTING`, which is tiny, and mini where texts are to be copied: what
    counts there is how many updates are made, and a narrower model makes more of them in the same time."""
    tokens: str = ""
    """What one of its tokens may span; see `quintain.text.tokenizer.SPANS`. Empty: as the environment needs it."""


def new_model(spec: str) -> NewModel | None:
    """Return the new model that `spec` names, or None where it is a folder or a hub id.

    Raises:
        UsageError: an unknown option, or a value that it cannot have.
    """
    size, _, written = spec.partition("?")
    if size not in SIZES and size != FITTING:
        return None
    options = dict(parse_qsl(written, keep_blank_values=True))
    tokens = options.pop("tokens", None)
    if options:
        raise UsageError(
            f"model: got {spec!r} with {', '.join(options)}; its one option is tokens, as tokens=words"
        )
    if tokens is not None and tokens not in SPANS:
        raise UsageError(f"model: got {spec!r}; {suggestion(tokens, SPANS)}")
    return NewModel(size, tokens or "")


def make_start(
    model: str, make_environment: Factory, *, seed: int, texts: Iterable[str] = (), dtype: str = "float32"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the model and tokenizer that `model` names: a new one (`new_model`), a folder, one of a run or a hub id.

    The tokenizer of a new one is trained on what the environment writes, and on `texts`; others are loaded in the
    precision `dtype`.
    """
    if (new := new_model(model)) is not None:
        tokens = new.tokens or fitting_tokens(make_environment)
        tokenizer = new_tokenizer(make_environment, seed=seed, tokens=tokens, texts=texts)
        size = new.size if new.size != FITTING else "mini" if tokens == "runs" else "tiny"
        return build_tiny(tokenizer, size=size, seed=seed, finds_same=tokens == "runs"), tokenizer
    loaded = load_policy(model, dtype=dtype)
    return loaded.model, loaded.tokenizer


def start_dtype(config: ModelSection) -> str:
    """Return the precision that the policy starts in: 16 bits where its base is kept so (`storage_dtype`)."""
    settings = config.main_policy()
    return storage_dtype(config.precision, find_device(config.device), is_frozen=settings.lora_rank > 0)


def fitting_tokens(make_environment: Factory) -> str:
    """Return what tokens of a new model should span in the environment; see `quintain.text.tokenizer.SPANS`.

    An argument that is a text of the agent's own is mostly a word out of what it has read. Phrases would make a new
    token of every pair of words; a word that is the same token wherever it stands can be copied.
    """
    tools = ask(make_environment, check_tools)
    return "runs" if any(has_free_text(tool.parameters) for tool in tools) else "phrases"


def has_free_text(schema: Mapping[str, Any]) -> bool:
    """Whether a JSON schema admits, anywhere in it, a text that it does not list."""
    if schema.get("type") == "string" and "enum" not in schema and "const" not in schema:
        return True
    inner: list[Any] = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    inner += [each for key in ("anyOf", "oneOf", "allOf", "prefixItems") for each in schema.get(key, ())]
    inner += [
        each for key in ("items", "additionalProperties") if isinstance(each := schema.get(key), Mapping)
    ]
    return any(has_free_text(each) for each in inner)


def new_tokenizer(
    make_environment: Factory, *, seed: int, tokens: str = "phrases", texts: Iterable[str] = ()
) -> PreTrainedTokenizerFast:
    """Return a tokenizer trained on what the environment writes and on `texts`; `tokens` as in `SPANS`."""
    return train_tokenizer(chain(corpus(make_environment, seed), texts), tokens=tokens)


def build_agent(
    tokenizer: PreTrainedTokenizerBase,
    make_environment: Factory,
    *,
    temperature: float,
    max_tokens: int = 128,
    agent: str = AUTO,
) -> Agent:
    """Return the harness that `agent` names; by default the one that fits the environment."""
    chat = Chat(tokenizer)
    return ask(
        make_environment,
        lambda environment: build(agent, chat, environment, temperature=temperature, max_tokens=max_tokens),
    )


def read_held_out(config: DataSection, count: int) -> tuple[Task, ...]:
    """Return the `count` tasks that every evaluation of `config` plays."""
    make_environment = find(config.eval_environment or config.environment)
    return draw_held_out(tasks_of(make_environment), count, config.task_offset)


def harness(config: DataSection, tokenizer: PreTrainedTokenizerBase, make_environment: Factory) -> Agent:
    """Return the harness that the policy of `config` acts through in the environment."""
    return build_agent(
        tokenizer,
        make_environment,
        temperature=config.temperature,
        max_tokens=config.max_turn_tokens,
        agent=config.agent,
    )


def teacher(make_environment: Factory, *, expert_noise: float = 0.0) -> Demonstrator:
    """Return the environment's expert, or random valid actions (which teach the form only) where it has none.

    The expert does something else in the share `expert_noise` of its turns (`environments.noisy`).

    Raises:
        ConfigError: there are to be mistakes, and no expert who could make them.
    """
    if not has_expert(make_environment):
        if expert_noise:
            raise ConfigError(
                f"expert_noise: got {expert_noise} with environment {spec_of(make_environment)}, which has no "
                "expert who could err; give it expert_action(), or set expert_noise to 0"
            )
        return fumble_action
    return noisy(expert_noise) if expert_noise else expert_action


def expert_action(environment: Environment, _rng: Random, _seen: Sequence[Observation]) -> Action:
    """Return the next action of the environment's expert."""
    assert isinstance(environment, Expert), "asked only where there is an expert"
    return environment.expert_action()


def valid_action(environment: Environment, rng: Random, seen: Sequence[Observation]) -> Action:
    """Return a random valid action; integers come from the range that the observations `seen` name."""
    return random_action(environment, rng, find_range_text(seen))


def fumble_action(environment: Environment, rng: Random, seen: Sequence[Observation]) -> Action:
    """Return a random valid action, or now and then a tool call that cannot be read.

    A policy that only ever saw calls go well does not know what to do once one went wrong. The warm-up does
    not imitate the unreadable ones: they are there for what comes after them.
    """
    return fumble_arguments(valid_action(environment, rng, seen), rng, FUMBLES)


def fumbling(demonstrator: Demonstrator, share: float) -> Demonstrator:
    """Return `demonstrator` with the given share of its tool calls written so that they cannot be read."""
    return lambda environment, rng, seen: fumble_arguments(demonstrator(environment, rng, seen), rng, share)


def fumble_arguments(action: Action, rng: Random, share: float) -> Action:
    """Return `action`, or with probability `share` a text that its tool calls cannot be read from."""
    if not action.tool_calls or rng.random() >= share:
        return action
    text = write_tool_calls(action.tool_calls)
    start = rng.randrange(1, len(text) - 1)
    return Action(text=text[:start] + text[start + rng.randint(1, 8) :])


def demonstrate(
    agent: Agent,
    make_environment: Factory,
    *,
    count: int,
    seed: int,
    expert_noise: float = 0.0,
    task_offset: int = 0,
    demonstrator: Demonstrator | None = None,
    on_episode: OnEpisode | None = None,
    has_state_keys: bool = False,
) -> list[Trajectory]:
    """Return the scored ones of `count` episodes of the teacher on training tasks, as the policy's tokens.

    `demonstrator` takes the place of the environment's expert, where it is given. States are recorded if
    `has_state_keys`.
    """
    tasks = TaskStream(tasks_of(make_environment), first=task_offset).draw(0, count)
    if isinstance(agent, Outside) and agent.expert:
        if expert_noise:
            raise ConfigError(
                f"expert_noise: got {expert_noise} with the expert {agent.expert} of an agent outside; let it err by "
                "itself, and leave expert_noise at 0"
            )
        occasion = derive_seed(seed, "demonstrations")
        return taught_episodes(agent, make_environment, tasks, seed=occasion, on_episode=on_episode)
    return demonstrate_on(
        agent, make_environment, tasks,
        seed=seed, expert_noise=expert_noise, demonstrator=demonstrator, on_episode=on_episode,
        has_state_keys=has_state_keys,
    )  # fmt: skip


def demonstrate_on(
    agent: Agent,
    make_environment: Factory,
    tasks: Sequence[Task],
    *,
    seed: int,
    expert_noise: float = 0.0,
    demonstrator: Demonstrator | None = None,
    on_episode: OnEpisode | None = None,
    has_state_keys: bool = False,
) -> list[Trajectory]:
    """Return the scored ones of an episode of the teacher on each of `tasks`, as the policy's tokens."""
    demonstrator = demonstrator or teacher(make_environment, expert_noise=expert_noise)
    limits = Limits(max_failure_share=0.5, has_state_keys=has_state_keys)
    rollout = Rollout(agent, make_environment, None, limits=limits)
    try:
        groups = rollout.demonstrations(
            tasks, demonstrator, seed=derive_seed(seed, "demonstrations"), on_episode=on_episode
        )
    finally:
        rollout.close()
    return [trajectory for group in groups for trajectory in group.scored]


def load_demonstrations(
    config: TrainConfig,
    make_environment: Factory,
    tokenizer: PreTrainedTokenizerBase,
    run: Run,
    display: Display,
    *,
    max_length: int = NO_LIMIT,
    teachers: Sequence[Demonstrator] = (),
    is_recorded: bool = True,
    expert: Callable[[], Demonstrations] | None = None,
    has_state_keys: bool = False,
) -> list[Trajectory]:
    """Return what the configuration imitates, recorded in the journal by a new run if it `is_recorded`; a resumed one
    repeats it.

    That is episodes of the teacher, or the conversations that `config` names, none of which is longer than
    `max_length`; where `teachers` are given, an episode of each of them on every task, with the number of the teacher
    as its index; where there is an `expert` whose episodes are recorded, these, as they are carried out.

    Raises:
        DataError: the conversations cannot be read, or have changed since the run began.
    """
    if isinstance(config.demonstrations, str):
        display.phase("reading demonstrations", 1)
        if expert is not None:
            found = expert()
        else:
            agent = (
                None if config.environment == NO_ENVIRONMENT else harness(config, tokenizer, make_environment)
            )
            found = load_data(
                Path(config.demonstrations), tokenizer, config, agent=agent, max_length=max_length
            )
        if check_digest(run, "demonstrations", found):
            display.say(f"demonstrations: {found.summary}")
            for note in found.notes:
                display.say(f"note: {note}")
        conversations = [each for each in found.data if isinstance(each, Trajectory)]
        if run.next_step == 0 and is_recorded:
            names = run.append(conversations, step=0, phase="demonstrations")
            conversations = [replace(t, id=name) for t, name in zip(conversations, names, strict=True)]
        return conversations
    count = USUAL_DEMONSTRATIONS if config.demonstrations is None else config.demonstrations
    display.phase("demonstrations", count * max(len(teachers), 1))
    trajectories = [
        replace(trajectory, index=number)
        for number, demonstrator in enumerate(teachers or (None,))
        for trajectory in demonstrate(
            harness(config, tokenizer, make_environment),
            make_environment,
            count=count,
            seed=derive_seed(config.seed, "teacher", number) if number else config.seed,
            expert_noise=config.expert_noise,
            task_offset=config.task_offset,
            demonstrator=demonstrator,
            on_episode=lambda _: display.advance(),
            has_state_keys=has_state_keys,
        )
    ]
    if run.next_step == 0 and is_recorded:
        run.append(trajectories, step=0, phase="demonstrations")
    return trajectories


def warm_start(
    model: PreTrainedModel,
    shown: Sequence[Trajectory] | PipelineResult,
    config: TrainConfig,
    *,
    display: Display,
) -> None:
    """Train `model` to write what is written in what was `shown`, at a learning rate that falls to 0."""
    device = model.device
    learner = imitator(model, config, config.imitation_lr)
    model.to(cast("Any", find_device(config.device)))
    fit_pass(learner, config.tokens_per_microbatch)
    updates = Imitation(learner, shown, config.imitation_epochs, config.seed)
    lengths = [len(sample.token_ids) for sample in updates.samples]
    for note in before_imitation(config, config, config.episodes_of_step, lengths):
        display.say(f"note: {note}")
    display.phase("warm start", updates.total)
    for _ in updates.run(falls=True):
        display.advance()
    end_imitation(model, device)


def imitation_lr(model: PreTrainedModel, given: float | None = None) -> float:
    """Return the learning rate at which `model` imitates; unless `given`, it falls with its width (2203.03466)."""
    if given is not None:
        return given
    share = GENTLE if getattr(model.config, COPIES, False) else 1.0
    return share * RATE_TIMES_WIDTH / cast("Any", model.get_input_embeddings()).weight.shape[1]


def imitator(model: PreTrainedModel, config: TrainConfig, rate: float | None) -> Learner:
    """Return what trains `model` in the warm start of `config`: layers of LoRA where the policy trains these.

    One that is made from nothing has no base for them: all of its weights imitate. It learns at `rate`; None: see
    `imitation_lr`.
    """
    settings = config.main_policy()
    if settings.lora_rank and new_model(config.model) is None:
        add_lora(
            model,
            settings.lora_rank,
            settings.lora_alpha,
            settings.lora_targets,
            name=IMITATION,
            seed=config.seed,
        )
    learner = Learner(
        model,
        Optimization(
            learning_rate=imitation_lr(model, rate),
            temperature=config.temperature,
            precision=config.precision,
            gradient_checkpointing=config.gradient_checkpointing,
            optimizer=config.optimizer,
            weight_decay=config.weight_decay,
            max_grad_norm=config.max_grad_norm,
        ),
    )
    learner.max_tokens = config.tokens_per_pass
    return learner


def end_imitation(model: PreTrainedModel, device: torch.device) -> None:
    """Add what an `imitator` has trained beside the weights of `model` into them, and move it to `device`."""
    if has_adapters(model):
        merge(model)
    model.to(cast("Any", device))


class Imitation:
    """Passes over demonstrations: ``for number in Imitation(learner, trajectories, epochs, seed).run(): ...``.

    Of whole episodes all is imitated that could be read; of what a pipeline chose, what counts.
    """

    def __init__(
        self, learner: Learner, shown: Sequence[Trajectory] | PipelineResult, epochs: int, seed: int
    ) -> None:
        self.samples = (
            example_samples(shown.examples)
            if isinstance(shown, PipelineResult)
            else imitation_samples(shown, is_left_out=lambda turn: turn.action.error is not None)
        )
        self.total = epochs * num_batches(len(self.samples), DEMONSTRATIONS_PER_UPDATE)
        """updates in all passes"""
        self._learner, self._seed = learner, seed

    def run(self, *, falls: bool = False) -> Iterator[int]:
        """Make the updates and yield the number of each; the learning rate `falls` to 0, or stays."""
        seed = (self._seed, "warm-up")
        for update in range(self.total):
            chosen = epoch_batch(len(self.samples), DEMONSTRATIONS_PER_UPDATE, update, seed)
            if chosen:
                batches = micro_batches(
                    [self.samples[i] for i in chosen], max_tokens=self._learner.max_tokens
                )
                self._learner.step(batches, imitation(), rate_scale=1 - update / self.total if falls else 1.0)
            yield update
