"""What methods need, in plain words, by their values."""

import pytest

from quintain_evidence.layers.needs import needs_of

TWO = "an expert, or its recorded episodes"


@pytest.mark.parametrize(
    ("name", "needs", "reads_files"),
    [
        ("grpo", ["an environment"], False),
        ("sft", [TWO], True),
        ("dpo", ["recorded episodes or pairs", "a frozen copy"], True),
        ("toolrl", ["an environment", "an expert in every state"], False),
        ("glam", ["an environment", "legal actions", "a critic"], False),
        ("agent_q", ["an environment", "a judge, if you like"], False),
        ("archer", ["an environment", "critics of its own"], False),
        ("dare", ["an environment", "tools with descriptions"], False),
        ("web_gpt", ["an environment", "a critic", "a reward model", "a frozen copy"], False),
    ],
)
def test_needs(name: str, needs: list[str], reads_files: bool) -> None:
    assert needs_of(name) == (needs, reads_files)
