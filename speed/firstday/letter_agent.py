"""An agent of one call over the openai SDK, and what scores it: an answer that begins with a digit."""

import openai

CLIENT = openai.OpenAI(base_url="http://127.0.0.1", api_key="none")


def run_agent(base_url, api_key, task):
    client = CLIENT.with_options(base_url=base_url, api_key=api_key)
    answer = client.chat.completions.create(
        model="policy", messages=[{"role": "user", "content": "Say a digit."}], max_tokens=8
    )
    return answer.choices[0].message.content or ""


def grade(task, answer):
    return float(answer[:1].isdigit())
