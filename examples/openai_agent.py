r"""An agent of yours: a plain loop over the OpenAI SDK that plays `guess`, and knows nothing of training.

quintain train grpo --environment "guess?high=8&max_turns=4" --agent examples/openai_agent.py:run_agent \
    --model "mini?tokens=words" --demonstrations 512 --expert-noise 0.5 --imitation_epochs 6 --learning_rate 1e-3 \
    --steps 40 --group_size 16 --eval_episodes 256
"""

import json

import openai

from quintain import Task
from quintain.types import Action, ToolCall, as_text
from quintain.worlds.guess.game import Guess

CLIENT = openai.OpenAI(base_url="http://127.0.0.1", api_key="none")
"""What episodes share: to make one of their own costs each of them more than all else that it does."""


def run_agent(base_url: str, api_key: str, task: Task) -> float:
    """Play the task with the model at `base_url`, and return the score."""
    world = Guess(high=8, max_turns=4)
    client = CLIENT.with_options(base_url=base_url, api_key=api_key)
    tools = [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
        }
        for t in world.tools()
    ]
    messages = [
        {"role": "system", "content": world.instructions()},
        {"role": "user", "content": as_text(world.reset(task))},
    ]
    score = 0.0
    for _ in range(world.max_turns):
        answer = client.chat.completions.create(model="policy", messages=messages, tools=tools)
        said = answer.choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            break
        for call in said.tool_calls:
            try:
                arguments = dict(json.loads(call.function.arguments))
            except (TypeError, ValueError) as error:  # the model is told, and may try again
                told = f"Error: the arguments are no JSON object: {error}"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": told})
                continue
            result = world.step(Action(tool_calls=(ToolCall(name=call.function.name, arguments=arguments),)))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": as_text(result.observation)})
            score += result.reward
            if result.is_terminated or result.is_truncated:
                return score
    return score
