"""ReTool: does a cold start on traces rewritten to code let RL gain more than the words they were rewritten from?

Two policies imitate as many traces of the same problems: one the words of an author who does sums in the head, one the
same traces rewritten to calls by the method. Each stops as soon as its success is that of the other, and both learn by
the method's own reward, credit and loss for as many episodes. The number is the gain in success of code minus that of
words. The control imitates, as long as code, traces whose calls stand in other problems: as many, of the same form,
with the numbers and results of another problem. In the null world there is nothing to be worked out. Gates: starts are
equal, code gains over words, and where calls fail in training, a failed call is made again more often at the end than
at the start, which RL without failures does not teach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from random import Random
from typing import Any

import torch

from quintain.agents.capped import is_answer
from quintain.credit_lab.permute import derange
from quintain.data.pipeline import as_example
from quintain.methods.toolrl import retool
from quintain.types import Action, Completion, Score, Stop, Text, Trajectory, Turn, as_text, derive_seed
from quintain_evidence.experiments.toolrl.calculating import (
    ANSWER,
    COMPUTE,
    NUMBER,
    OTHER,
    THINK,
    Setting,
    Sum,
    success,
    tasks,
)
from quintain_evidence.labs.exact import log_policy
from quintain_evidence.labs.tabular import TablePolicy

Plan = Sequence[Action]
FAILED = slice(3, None, 2)
"""rows after a call that failed, with something left to be done"""
MOST = 100
"""updates of imitation"""
LONGER = 3
"""times as many batches where what follows a failed call is looked at"""
THOUGHT = Action(text="in the head")


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs of gains in success over that of words."""
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("retool", seed, number)
        lab, easy = Lab(options, own, steps=2), Lab(options, own, steps=0)
        failing = Lab(options, own, steps=2, failures=float(options.get("failures", 0.4)))
        starts = lab.words(), lab.code(), lab.swapped()
        code = starts[1]
        of_words, of_code, of_swapped = map(lab.gain, starts)
        easy_words, easy_code, easy_swapped = map(easy.gain, (easy.words(), easy.code(), easy.swapped()))
        begun = list(map(lab.success, starts))
        found.append(
            {
                "method": of_code - of_words,
                "control": of_swapped - of_words,
                "null_method": easy_code - easy_words,
                "null_control": easy_swapped - easy_words,
                "extra.gain": of_code,
                "extra.baseline": of_words,
                "extra.per_headroom": of_code / (1 - begun[1]) - of_words / (1 - begun[0]),
                "extra.start": begun[1],
                "extra.apart": abs(begun[1] - begun[0]),
                "extra.start_swapped": begun[2],
                "extra.repairs": repairs(failing.trained(code, longer=LONGER)) - repairs(code),
                "extra.untaught": repairs(lab.trained(code, longer=LONGER)) - repairs(code),
                "extra.kept": len(lab.kept) / len(lab.pool),
            }
        )
    return found


def repairs(policy: TablePolicy) -> float:
    """Return the probability that a failed call is made again, mean over the rows after one."""
    return float(policy.probabilities()[FAILED, COMPUTE].mean())


class Lab:
    """Problems of so many operations, and policies that imitated traces of them."""

    def __init__(self, options: Mapping[str, Any], seed: int, *, steps: int, failures: float = 0.0) -> None:
        self.options, self.seed = options, seed
        self.slips, self.num_updates = float(options.get("slips", 0.5)), 0
        self.setting = Setting(steps=(steps,), thinks=1 - self.slips, failures=failures, horizon=6)
        self.pool = tasks("train", seed, 64)
        self.fresh = tasks("eval", seed, int(options.get("held_out", 256)))

    @cached_property
    def kept(self) -> dict[int, list[Action]]:
        """The traces that the method rewrites and keeps, by the number of their problem."""
        author, rng = retool.Author(slips=retool.Config().error_rate), Random(self.seed)
        plans: dict[int, list[Action]] = {}
        for number, task in enumerate(self.pool):
            world = Sum(self.setting, task).world
            plans[number] = retool.rewrite(author.write(world, rng), world.tools())
        kept = retool.check_rewrite().run([as_example(self.shown(k, plan)[0]) for k, plan in plans.items()])
        names = {example.trajectory.task.id for example in kept.examples}
        return {k: plan for k, plan in plans.items() if self.pool[k].id in names}

    def words(self) -> TablePolicy:
        """Return a policy that imitated the words which the others' traces were rewritten from."""
        return self.imitated({k: [*(THOUGHT for _ in plan[:-1]), plan[-1]] for k, plan in self.kept.items()})

    def code(self) -> TablePolicy:
        """Return a policy that imitated the traces rewritten to code."""
        return self.imitated(self.kept)

    def swapped(self) -> TablePolicy:
        """Return a policy that imitated as much code as the last one, whose calls are those of another problem."""
        numbers = sorted(self.kept)
        others = [numbers[place] for place in derange(len(numbers), self.seed)]
        return self.imitated(
            {k: [*self.kept[other][:-1], self.kept[k][-1]] for k, other in zip(numbers, others, strict=True)},
            max(self.num_updates, 1),
        )

    def shown(self, number: int, plan: Plan) -> tuple[Trajectory, list[tuple[int, int]]]:
        """Return problem `number` done as `plan` says, and the moves of the table that this is: (row, column)."""
        task, said, is_success = self.pool[number], "the problem", False
        game, turns, moves = Sum(self.setting, task), list[Turn](), list[tuple[int, int]]()
        for action in plan:
            row, column, before = game.row(), move_of(action, game), said
            if column == THINK:
                game.act(THINK, 0.0)
            else:
                result = game.world.step(action)
                said, is_success = as_text(result.observation), bool(result.is_success)
                if told := NUMBER.search(said):
                    game.take(int(told[0]))
            moves.append((row, column))
            turns.append(
                Turn(
                    observation=(Text(text=before),),
                    prompt_ids=(row,),
                    completion=Completion(token_ids=(column,), logprobs=(), stop="stop"),
                    action=action,
                    starts_segment=not turns,
                )
            )
        done = Trajectory(
            task=task,
            turns=tuple(turns),
            outcome=Score(value=float(is_success), is_success=is_success),
            stop=Stop.TERMINATED,
            seed=0,
            group=task.id,
            index=0,
        )
        return done, moves

    def imitated(self, plans: Mapping[int, Plan], num: int = 0) -> TablePolicy:
        """Return the start after imitating `plans` until its success is as wanted, or in `num` updates."""
        moves = [move for number, plan in plans.items() for move in self.shown(number, plan)[1]]
        rows, columns = map(list, zip(*moves, strict=True))
        policy = self.setting.table(self.seed)
        optimizer = torch.optim.Adam([policy.theta], 0.05)
        wanted, num_done = float(self.options.get("start", 0.15)), 0
        while num_done < num if num else num_done < MOST and self.success(policy) < wanted:
            optimizer.zero_grad()
            (-log_policy(policy.world, policy.theta)[rows, columns].mean()).backward()
            optimizer.step()
            num_done += 1
        self.num_updates = num_done
        return policy

    def success(self, policy: TablePolicy) -> float:
        """Return the success of `policy` on problems that nothing is learned from."""
        return success(self.setting.play(policy, self.fresh, size=2, seed=self.seed))

    def trained(self, start: TablePolicy, *, longer: int = 1) -> TablePolicy:
        """Return what becomes of `start` by the method's RL, of `longer` times as many batches."""
        return self.setting.trained(
            start,
            retool.method(retool.Config()),
            self.pool,
            batches=longer * int(self.options["batches"]),
            rate=float(self.options["rate"]),
            seed=self.seed,
        )

    def gain(self, start: TablePolicy) -> float:
        """Return the gain of `start` in success by the method's RL."""
        return self.success(self.trained(start)) - self.success(start)


def move_of(action: Action, game: Sum) -> int:
    """Return the move of the table that `action` is in `game`."""
    if not action.tool_calls:
        return THINK
    if is_answer(action):
        return ANSWER
    (call,) = action.tool_calls
    name, term = game.steps[min(game.num_done, len(game.steps) - 1)]
    wanted = (name, {"a": game.value, "b": term})
    return COMPUTE if (call.name, dict(call.arguments)) == wanted else OTHER
