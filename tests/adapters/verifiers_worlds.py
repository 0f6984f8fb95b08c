"""Environments of verifiers for `test_verifiers`, written as its documentation says; a worker loads them."""

from typing import Any

import verifiers as vf  # pyright: ignore[reportMissingImports]
from datasets import Dataset  # pyright: ignore[reportMissingImports]

ROWS = [{"question": f"What is {number} + {number}?", "answer": str(2 * number)} for number in range(8)]
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def exact(completion: Any, answer: str) -> float:
    return float(completion[-1].content.strip() == answer)


def polite(completion: Any) -> float:
    return float("please" in completion[-1].content)


def broken(completion: Any) -> float:
    raise ValueError("no verdict")


async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    if a < 0:
        raise vf.ToolCallError("add is out of order")
    return a + b


class Higher(vf.MultiTurnEnv):  # pyright: ignore[reportUntypedBaseClass]
    """Guess the answer: each turn says whether it is more."""

    async def setup_state(self, state: Any) -> None:
        state["left"] = 3

    async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
        said, answer = messages[-1].content.strip(), int(state["answer"])
        state["left"] -= 1
        if said == "crash":
            raise RuntimeError("the world fell apart")
        if said == "infra":
            raise vf.InfraError("the sandbox is gone")
        if said == str(answer) or not state["left"]:
            state["final_env_response"] = [vf.UserMessage(content="that was it")]
            return state["final_env_response"]
        if not said.lstrip("-").isdecimal():
            return [vf.UserMessage(content="say a number")]
        return [vf.UserMessage(content="more" if int(said) < answer else "less")]


class Told(vf.MultiTurnEnv):  # pyright: ignore[reportUntypedBaseClass]
    """Builds its prompt anew each turn."""

    async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
        raise NotImplementedError

    async def get_prompt_messages(self, state: Any) -> Any:
        return [vf.UserMessage(content=f"turn {len(state['trajectory'])}")]


def load_environment(kind: str = "single", more: int = 0, **_: Any) -> Any:
    rows = Dataset.from_list(ROWS)
    rubric = vf.Rubric(funcs=[exact, polite], weights=[1.0, 0.25])
    if kind == "single":
        return vf.SingleTurnEnv(dataset=rows, system_prompt="Answer with a number.", rubric=rubric)
    if kind == "tools":
        return vf.ToolEnv(
            dataset=rows,
            eval_dataset=rows.select(range(2)),
            tools=[add],
            rubric=rubric,
            stop_errors=[vf.ToolError],
        )
    if kind == "turns":
        return Higher(dataset=rows, rubric=rubric)
    if kind == "anew":
        return Told(eval_dataset=rows, rubric=rubric, max_turns=2 + more)
    if kind == "broken":
        return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric(funcs=[broken]))
    if kind == "group":
        return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric(funcs=[lambda completions: [0.0]]))
    if kind == "many":
        parts = [load_environment("single"), load_environment("turns")]
        return vf.EnvGroup(envs=parts, env_names=["one", "two"])
    if kind == "picture":
        parts = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": PIXEL}}]
        row = {"prompt": [{"role": "user", "content": parts}], "answer": "1"}
        return vf.SingleTurnEnv(dataset=Dataset.from_list([row, row]), rubric=rubric)
    raise ValueError(f"no kind {kind}")
