import base64
import hashlib
import re

import pytest

from quintain.dashboard.page import STYLE, escape, page, table

ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"><svg onload='alert(1)'>",
    "' onmouseover='alert(1)",
    "</style><script>",
    "</title><script>",
    "javascript:alert(1)",
    "<iframe srcdoc='&lt;script&gt;'>",
    "<!--",
    "]]>",
    "<a href='data:text/html,x'>",
    "&lt;script&gt;",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_markup_in_text_is_inert(attack: str) -> None:
    for made in (escape(attack), page(attack, ""), table([(attack, attack)])):
        assert attack not in made or not set(attack) & set("<>\"'&")
        assert "<script" not in made and "<img" not in made and "<iframe" not in made
    assert not set(escape(attack)) & set("<>\"'")


def test_control_and_direction_characters_are_spelled_out() -> None:
    assert escape("a\x00b\x1b[31m\u202eé\ud800\n\t") == "a\\u0000b\\u001b[31m\\u202eé\\ud800\n\t"
    assert escape(3) == "3"


def test_the_policy_allows_our_style_and_nothing_else() -> None:
    made = page("run", "<p>body</p>")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', made)
    style = re.search(r"<style>(.*?)</style>", made, re.DOTALL)
    assert policy is not None and style is not None and style[1] == STYLE
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert (
        policy[1] == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert "http" not in re.sub(r"http-equiv", "", made)
    assert "<p>body</p>" in made


def test_the_style_loads_nothing() -> None:
    assert "url(" not in STYLE and "@import" not in STYLE
