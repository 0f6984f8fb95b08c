"""Write conversations with a tool, as OpenAI's API has them: python chats.py chats.jsonl"""

import argparse
import json
import random

CITIES = ("Oslo", "Lima", "Cairo", "Perth", "Delhi", "Quito", "Turin", "Kyoto")
SKIES = ("sunny", "rainy", "cloudy", "windy")
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def conversation(rng):
    city, sky, degrees = rng.choice(CITIES), rng.choice(SKIES), rng.randrange(-5, 36)
    call = {
        "id": "call_0",
        "type": "function",
        "function": {"name": "get_weather", "arguments": json.dumps({"city": city})},
    }
    return {
        "tools": [TOOL],
        "messages": [
            {"role": "user", "content": f"How is the weather in {city}?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_0", "content": f"{sky}, {degrees} degrees"},
            {"role": "assistant", "content": f"It is {sky} in {city}, at {degrees} degrees."},
        ],
    }


if __name__ == "__main__":
    rng = random.Random(0)
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    with open(parser.parse_args().file, "w", encoding="utf-8") as file:
        for _ in range(400):
            file.write(json.dumps(conversation(rng)) + "\n")
