"""Chat templates of two packages are followed, or refused for a reason that is written down."""

import pytest
from tests.text.foreign import load_templates
from tests.text.template_table import verdicts

pytestmark = pytest.mark.templates

REFUSED = {
    "llama.cpp/Apertus-8B-Instruct",  # begins answers behind results with a header that its history has not
    "llama.cpp/GigaChat3-10B-A1.8B",  # ends the words and the calls of an answer with one token
    "llama.cpp/NVIDIA-Nemotron-Nano-v2",  # writes answers into the thought that its prompt opens
    "llama.cpp/deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",  # ends an answer between its words and its calls
    "llama.cpp/fireworks-ai-llama-3-firefunction-v2",  # wants a variable of its own
    "llama.cpp/upstage-Solar-Open-100B",  # ends thoughts and answers with one token
}


@pytest.mark.timeout(1800)  # 111 templates, one after the other
def test_templates_are_followed_or_refused_for_a_known_reason() -> None:
    assert len(load_templates()) == 111
    refused = {name: said for name, is_followed, said in verdicts() if not is_followed}
    assert set(refused) <= REFUSED, refused
