"""What Search-R1, R1-Searcher and ReSearch learn from, and the traps of their code, each where it would be noticed."""

import importlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.build import make_episode, make_turn

from quintain.credit.gae import gae_tokens
from quintain.credit.layout import Critic, credit_of
from quintain.credit.whiten import whiten
from quintain.credit_lab.gradient import GradientLab
from quintain.data.samples import samples_from
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.table import TABLE
from quintain.methods.toolrl import r1_searcher, research, search_r1
from quintain.models.tiny import build_tiny
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Failure, Group, Score, Stop, ToolCall, Trajectory, Turn

ROWS = ("search_r1", "r1_searcher", "research")
PAGES = Path(__file__).resolve().parents[3] / "docs" / "methods"
SEARCH, ANSWER = (
    ToolCall(name="search", arguments={"query": "a"}),
    ToolCall(name="answer", arguments={"text": "b"}),
)
DOCUMENT = (5, 6, 7)


def episode(
    score: float,
    *,
    index: int = 0,
    task: str = "t",
    document: Sequence[int] = DOCUMENT,
    searches: bool = True,
) -> Trajectory:
    """An episode that searches, reads `document` and answers; its tokens are 10 + index."""

    def turn(prompt: Sequence[int], said: Sequence[int], call: ToolCall, *, is_first: bool) -> Turn:
        is_answer = call is ANSWER
        return make_turn(
            said,
            logprob=-1.0,
            prompt=prompt,
            action=Action(tool_calls=(call,)),
            starts_segment=is_first,
            reward=score if is_answer else 0.0,
            reward_terms={"answer": score} if is_answer else {},
        )

    turns = [turn((1, 2), (10 + index, 3), SEARCH, is_first=True)] if searches else []
    turns.append(turn(document if searches else (1, 2), (20 + index, 3), ANSWER, is_first=not searches))
    return make_episode(
        *turns,
        task=task,
        outcome=Score(value=score, is_success=score == 1),
        seed=index,
        group=task,
        index=index,
    )


def group(*scores: float, task: str = "t", **options: object) -> Group:
    members = tuple(episode(score, index=k, task=task, **options) for k, score in enumerate(scores))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    return Group(task=members[0].task, trajectories=members)


def advantages(method: OnPolicy, groups: Sequence[Group], critic: Critic | None = None) -> list[list[float]]:
    credit = method.credit(method.reward(groups), Estimates(values=critic))
    return [[float(x) for array in turns for x in array] for turns in credit.advantages]


@pytest.fixture(scope="module")
def lab() -> GradientLab:
    return GradientLab(build_tiny(train_tokenizer(["some text"], 300), size="micro", seed=3))


GRPO = search_r1.method(search_r1.Config(kl_coef=0.0))


def test_only_sampled_tokens_have_a_weight() -> None:
    credit = GRPO.credit(GRPO.reward([group(1.0, 0.0)]), Estimates())
    for sample, own in zip(samples_from(credit), (0, 1), strict=True):
        trained = sample.token_ids[sample.loss_weight > 0].tolist()
        assert trained == [10 + own, 3, 20 + own, 3] and len(sample.token_ids) == 9
        assert not sample.advantages[sample.loss_weight == 0].any()


def test_noise_on_what_was_retrieved_leaves_the_gradient_bit_equal_and_its_text_changes_what_comes_after(
    lab: GradientLab,
) -> None:
    credit = GRPO.credit(GRPO.reward([group(1.0, 0.0, 0.0)]), Estimates())
    samples = samples_from(credit)
    noise = np.random.default_rng(0)
    noisy = [
        replace(
            s,
            advantages=np.where(s.loss_weight > 0, s.advantages, noise.normal(size=len(s.token_ids))).astype(
                np.float32
            ),
        )
        for s in samples
    ]
    plain = lab.of_samples(samples, GRPO.update)
    assert torch.equal(plain, lab.of_samples(noisy, GRPO.update)) and plain.abs().sum() > 0
    other = GRPO.credit(GRPO.reward([group(1.0, 0.0, 0.0, document=(5, 8, 7))]), Estimates())
    assert not torch.equal(plain, lab.gradient(other, GRPO.update)), "it is read: a mask is not attention"
    same, read = (lab.log_ratios([group(1.0, document=d)]) for d in (DOCUMENT, (5, 8, 7)))
    assert same[:2].tolist() == read[:2].tolist() and not np.allclose(same[2:], read[2:])


@pytest.mark.parametrize("document", [(5, 6, 7) * 10, (0, 0, 3), (3,)])
def test_a_longer_document_or_one_of_pads_and_end_tokens_changes_no_advantage(
    document: Sequence[int],
) -> None:
    values = [[np.array([0.2, 0.4]), np.array([0.5, 0.1])]] * 2
    ppo = search_r1.method(search_r1.Config(algorithm="ppo", kl_coef=0.0))
    for method, critic in ((GRPO, None), (ppo, Critic(values=values))):
        long = advantages(method, [group(1.0, 0.0, document=document)], critic)
        assert long == advantages(method, [group(1.0, 0.0)], critic)
    [first, _] = advantages(ppo, [group(1.0, 0.0)], Critic(values=values))
    by_hand = whiten(gae_tokens([group(1.0, 0.0)], Critic(values=values), gae_lambda=1.0))
    assert first == [float(x) for array in by_hand.advantages[0] for x in array] and len(first) == 4


def test_right_is_right_and_alone_in_a_group_there_is_nothing_to_compare() -> None:
    [high, low, _] = advantages(GRPO, [group(1.0, 0.0, 0.0)])
    assert high == pytest.approx([1.1547] * 4, abs=1e-4) and low == pytest.approx([-0.57735] * 4, abs=1e-4)
    assert advantages(GRPO, [group(1.0)]) == [[0.0] * 4], "not its raw reward"
    assert advantages(GRPO, [group(0.5, 0.9)]) == [[0.0] * 4] * 2, "half right is not right"


def test_with_a_price_for_the_kl_the_loss_has_a_reference_and_ppo_prices_the_reward() -> None:
    method = search_r1.method(search_r1.Config())
    assert method.needs.reference and method.update.has_reference and not method.needs.critic
    ppo = search_r1.method(search_r1.Config(algorithm="ppo", tasks=2, group_size=3, kl_coef=0.5))
    assert ppo.needs.critic and ppo.needs.reference_logprobs and not ppo.update.has_reference
    values = [[np.zeros(2), np.zeros(2)]] * 2
    near, far = ([[np.full(2, ref), np.full(2, ref)]] * 2 for ref in (-1.0, -2.0))
    groups = [group(1.0, task="a"), group(0.0, task="b")]
    found = [
        ppo.credit(groups, Estimates(values=Critic(values=values), reference=reference))
        for reference in (near, far)
    ]
    assert found[0].metrics["kl/episode"] == 0.0 and found[1].metrics["kl/episode"] == pytest.approx(4.0)


def test_the_stage_is_the_number_of_the_step_also_in_a_run_that_was_resumed() -> None:
    def paid(method: OnPolicy, step: Sequence[Group]) -> list[float]:
        method.state.update(step)
        return [value for own in method.reward(step) for value in own.returns]

    step = [group(1.0, 0.0), group(0.0, task="b", searches=False)]
    config = r1_searcher.Config(first_steps=2, tasks=2, group_size=2)
    whole = r1_searcher.method(config)
    run = [paid(whole, step) for _ in range(4)]
    assert run == [[1.0, 1.0, 0.5]] * 2 + [[1.0, 0.0, 0.0]] * 2
    again = r1_searcher.method(config)
    for _ in range(2):
        again.state.update(step)
    assert paid(again, step) == run[2]


def test_advantages_are_centred_and_neither_divided_nor_shifted_by_a_failure() -> None:
    method = r1_searcher.method(r1_searcher.Config(first_steps=0))
    method.state.update(())
    right = group(1.0, 0.0)
    broken = replace(
        right.trajectories[0], outcome=Failure(owner="tool", kind="tool_timeout", message="slow")
    )
    mixed = Group(task=right.task, trajectories=(broken, *right.trajectories))
    alike = group(0.0, 1.0, task="the same words, another task")
    found = advantages(method, [mixed, alike])
    assert [own[0] for own in found] == [0.5, -0.5, -0.5, 0.5], "groups are ids, not places and not wordings"


def test_research_pays_f1_and_what_was_cut_counts_in_its_group() -> None:
    method = research.method(research.Config(kl_coef=0.0))
    cut = replace(episode(1.0, index=2), stop=Stop.MAX_TOKENS)
    members = (episode(0.5), episode(0.0, index=1), cut)
    [rewarded] = method.reward([Group(task=members[0].task, trajectories=members)])
    assert rewarded.returns == [0.5, 0.1, 0.0]
    found = [own[0] for own in advantages(method, [Group(task=members[0].task, trajectories=members)])]
    assert found == pytest.approx(
        ((np.array([0.5, 0.1, 0.0]) - 0.2) / np.std([0.5, 0.1, 0.0], ddof=1)).tolist(), rel=1e-4
    )


def test_sampled_ids_are_trained_where_cutting_at_a_tag_and_encoding_again_gives_others() -> None:
    corpus = ["the seat of Orbit is Rome </search> the mayor of Rome is Ben </answer>"] * 4
    tokenizer = train_tokenizer(corpus, 340)
    rng = np.random.default_rng(0)
    others = 0
    for index in range(100):
        ids = [int(x) for x in rng.integers(260, len(tokenizer), 12)]
        said = replace(episode(1.0).turns[0].completion, token_ids=tuple(ids), logprobs=(-1.0,) * 12)
        whole = episode(float(index % 2), index=index)
        changed = replace(whole, turns=(replace(whole.turns[0], completion=said), whole.turns[1]))
        [sample] = samples_from(credit_of([changed], [[np.ones(12), np.ones(2)]]))
        assert sample.token_ids[sample.loss_weight > 0].tolist()[:12] == ids
        again = tokenizer.encode(str(tokenizer.decode(ids)), add_special_tokens=False)
        others += again != ids
    assert others > 5


def test_what_is_measured_says_how_much_is_searched() -> None:
    found = GRPO.measure([group(1.0, 0.0), group(0.0, task="b", searches=False)], lambda _: "")
    assert found == {"search/rate": 2 / 3, "search/calls": 2 / 3, "search/well_formed": 1.0}
    assert GRPO.measure([], lambda _: "") == {}


@pytest.mark.parametrize("name", ROWS)
def test_the_page_says_how_the_method_differs(name: str) -> None:
    entry = next(each for each in TABLE if each.name == name)
    doc = importlib.import_module(f"quintain.methods.{entry.module}").__doc__ or ""
    said = re.search(r"^Differences to [^:]*: (.*?)(\n\n|\Z)", doc, re.MULTILINE | re.DOTALL)
    assert said is not None and "easured on " in said[1]
    told = " ".join((PAGES / f"{name}.md").read_text(encoding="utf-8").split())
    words = " ".join(said[1].split())
    assert (
        f"**Differences.** {words[0].upper()}{words[1:]}" in told and f"quintain train {name} --env" in told
    )
