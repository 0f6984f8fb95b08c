"""What is read otherwise than others expect, and why: recorded answers, and chat templates."""

from collections.abc import Mapping

CASES: Mapping[str, str] = {
    "deepseek/sglang-v4-self-closing-invoke": "a call that closes itself is in no template of the family: malformed",
    "glm/glm47-missing-last-close-arg-value": "a value that is not closed is not guessed: malformed",
    "gpt-oss/harmony-truncated-in-header": "a header that is cut stays in the words, beside a call that is malformed",
    "kimi/k2i-vllm-noise-between-markers": "words between two marks are words",
    "qwen3-xml/llamacpp-q35-call-inside-think": "a call in a thought that does not end is no call",
    "qwen3-xml/vllm-coder-missing-close-parameter": "a value that is not closed is not guessed: malformed",
    "qwen3-xml/bug-missing-close-parameter-before-function": "a value that is not closed is not guessed: malformed",
}
"""Recorded answers of `canitoolcall` that are not read as expected there."""

TEMPLATES: Mapping[str, str] = {
    "llama.cpp/NVIDIA-Nemotron-Nano-v2": "it writes answers into the thought that its own prompt opens",
}
"""Chat templates that write calls and are read back by no format."""

UNRENDERED: Mapping[str, str] = {
    "trl/llava_next": "contents must come in parts",
    "llama.cpp/fireworks-ai-llama-3-firefunction-v2": "it asks for the tools under another name",
}
"""Chat templates that render none of the probe chats."""
