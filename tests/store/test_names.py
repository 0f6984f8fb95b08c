from pathlib import Path

import pytest

from quintain.errors import UsageError
from quintain.store.names import check_name, run_folder


@pytest.mark.parametrize(
    "name", ["quickstart", "a", "grpo-7", "2026.01.31_x+y=z", "x" * 100, "console", "com"]
)
def test_a_plain_name_is_a_folder_of_the_root(name: str, tmp_path: Path) -> None:
    assert run_folder(tmp_path, name) == tmp_path / name


BAD_NAMES = [
    *(
        "",
        ".",
        "..",
        "../x",
        "../../x",
        "a/b",
        "/etc",
        "a\\b",
        "C:\\x",
        "C:",
        "~",
        "~root",
        "$(id)",
        "`id`",
        "a b",
    ),
    *(
        " a",
        "a ",
        "a\n",
        "\n",
        "a\x00",
        "\x1b[31m",
        "a\x7f",
        ".hidden",
        "-rf",
        "--replace",
        "_x",
        "a.",
        "x" * 101,
    ),
    *(
        "x" * 5000,
        "NUL",
        "con",
        "com1",
        "LPT9.txt",
        "aux.tar.gz",
        "é",
        "\u202etxt",
        "a*",
        "a?",
        "a|b",
        "a;b",
        "%2e",
    ),
    *("\uff0e\uff0e", "runs/../x", "a:b", "'", '"'),
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_anything_else_is_refused_in_one_printable_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        run_folder(tmp_path, name)
    assert str(caught.value).startswith("run name: got ")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 300


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="symbolic link; remove the link"):
        run_folder(tmp_path, "link")


def test_check_name_returns_the_name() -> None:
    assert check_name("one") == "one"
