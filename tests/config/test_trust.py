"""The door for names in stored configurations: what names something outside is asked for, whatever field it is in."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.agents.catalog import names as agents
from quintain.config.trust import ADAPTERS, OUTSIDE, Named, admit, files_named, find_names, is_built_in
from quintain.environments.specs import ADAPTERS as EXAMPLES
from quintain.environments.specs import CATALOG, ELSEWHERE
from quintain.errors import ConfigError
from quintain.methods.find import find_method
from quintain.methods.table import MODULES

HOSTILE = {
    "environment": {
        "evil.py": "the Python file evil.py",
        "RUN/evil.py:X": "the Python file RUN/evil.py:X",
        "evil.module:X": "the Python module evil.module:X",
        "__main__:X": "the Python module __main__:X",
        "mix:guess@2,evil.py:X": "the Python file evil.py:X",
        "routed?workers=evil.py:X": "the Python file routed?workers=evil.py:X",
        "tasks:@t.jsonl": "the file t.jsonl",
        "session:evil.py:X?tasks=2": "the Python file evil.py:X?tasks=2",
        "reward-function/evil.py:f": "the Python file reward-function/evil.py:f",
        "tasks:evil.py:X@t.jsonl": "the Python file evil.py:X",
        "worker/guess?python=pwn": "python: the program pwn",
        "worker/guess?p%79thon=pwn": "the file worker/guess?p%79thon=pwn",
        "worker/mcp/x.json": "the file worker/mcp/x.json",
        "mcp/x.json": "the file mcp/x.json",
        "http-tools/RUN/x.toml": "the file http-tools/RUN/x.toml",
        "openenv/10.0.0.1:8000": "the address openenv/10.0.0.1:8000",
        "agentgym/host": "the address agentgym/host",
        "verifiers/evil": "the Python module verifiers/evil",
        "verifiers/evil.py": "the Python file verifiers/evil.py",
        "gymnasium/evil:Env-v0": "the Python module gymnasium/evil:Env-v0",
        "desk?user=http://10.0.0.1/v1": "user: the address http://10.0.0.1/v1",
        "hopqa?retriever=http://10.0.0.1": "retriever: the address http://10.0.0.1",
        "hopqa?corpus=/etc": "corpus: the file /etc",
        "guess?x=${SECRET}": "the text guess?x=${SECRET}",
        "mcp": "the text mcp",
    },
    "agent": {
        "endpoint?command=touch x&grade=operator:eq": "command: the command touch x",
        "mine.py:run_agent?grade=grade": "the Python file mine.py:run_agent",
        "os:system": "the Python module os:system",
        "code?library=lib": "library: the file lib",
        "cased?cases=x+text": "cases: the file x+text",
        "drafted?knowledge=x": "knowledge: the file x",
        "searched?score=plans&solved=x+text": "solved: the file x+text",
        "guided?reward_model=x+text": "reward_model: the file x+text",
    },
    "engine": {
        "vllm": "the program vllm",
        "vllm?replicas=2": "the program vllm?replicas=2",
        "vllm?program=/x/pwn": "program: the program /x/pwn",
        "vllm?url=http://10.0.0.1": "url: the address http://10.0.0.1",
        "sglang?arguments=--x": "arguments: the command --x",
    },
    "cluster": {"local": "the address local", "ray://h:1": "the address ray://h:1"},
    "track": {"wandb": "the service wandb"},
    "judge": {"http://h/v1?model=m&key_file=k": "key_file: the file k"},
    "model": {"/models/x": "the file /models/x", "owner/name": "the file owner/name"},
    "method": {
        "evil.py": "the Python file evil.py",
        "evil.module:method": "the Python module evil.module:method",
    },
    "anything_new": {
        "~/x": "the file ~/x",
        "a b": "the text a b",
        "..\\x": "the text ..\\x",
        "$HOME": "the text $HOME",
    },
}
HARMLESS = [
    *(name for name in CATALOG if name not in EXAMPLES),
    *(example for name, example in EXAMPLES.items() if name not in ELSEWHERE),
    *(agent for agent in agents()),
    "keydoor?rooms=3",
    "routed?workers=anna:go,open;bert:take&steps=2",
    "mix:guess@2,keydoor?rooms=3",
    "window?turns=4+tools?calls=llama",
    "gymnasium/FrozenLake-v1?is_slippery=false",
    "worker/babyai/GoToRedBallNoDists",
    "hopqa?retriever=dense",
    "desk?user=scripted",
    "mini?tokens=words",
    "entropy=0.5,window=10",
    "r=16,alpha=32,targets=q_proj+v_proj",
]


@dataclass
class Maker:
    """Who made a run."""

    is_own: bool = False
    made_in: str = ""
    reason: str = "it has no mark of yours"


@dataclass
class Stored:
    """A run as the door sees it."""

    config: dict[str, Any]
    recipe: str = "grpo"
    folder: Path = Path("runs/a")
    origin: Maker = field(default_factory=Maker)


@pytest.mark.parametrize(
    ("name", "text", "said"), [(name, *each) for name, texts in HOSTILE.items() for each in texts.items()]
)
def test_what_names_something_outside_is_asked_for(name: str, text: str, said: str) -> None:
    assert any(said in str(named) for named in find_names({name: text}))
    run = Stored({} if name == "method" else {name: text}, recipe=text if name == "method" else "grpo")
    with pytest.raises(
        ConfigError, match=r"runs/a: got a run that may be somebody else's .it has no mark of yours."
    ) as e:
        admit(run, is_trusted=False, to="evaluating")
    assert said in str(e.value) and "--trust-run" in str(e.value) and "\n" not in str(e.value)
    assert admit(run, is_trusted=True, to="evaluating") is run.config


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_quintains_own_is_not(text: str) -> None:
    assert list(find_names({"environment": text, "agent": text, "other": [text, {"key": text}]})) == []
    assert is_built_in(text)


def test_every_adapter_is_known_to_the_door() -> None:
    assert set(OUTSIDE) == ELSEWHERE
    assert set(EXAMPLES) - ELSEWHERE == ADAPTERS


@pytest.mark.parametrize("method", MODULES)
def test_the_defaults_of_a_method_name_nothing(method: str) -> None:
    defaults: dict[str, Any] = {}
    for each in dataclasses.fields(find_method(method).config_class):
        if each.default is not dataclasses.MISSING:
            defaults[each.name] = each.default
        elif each.default_factory is not dataclasses.MISSING:
            defaults[each.name] = each.default_factory()
    assert list(find_names({"method": method, **defaults})) == []


@pytest.mark.parametrize("method", MODULES)
def test_no_field_of_any_method_takes_a_name_past_the_door(method: str) -> None:
    for text in ("/x/evil.sh", "evil.py:X", "http://10.0.0.1/v1", "evil.module:X", "touch x"):
        for each in dataclasses.fields(find_method(method).config_class):
            assert list(find_names({each.name: text})), each.name
            assert list(find_names({each.name: {"a": {"b": [text]}}})), each.name


@given(
    st.text(min_size=1, max_size=20),
    st.sampled_from(["/", ":", "\\", "$", "%", " ", "'", '"', "`", "~", "\x1b"]),
)
def test_no_sign_of_a_place_is_plain(text: str, sign: str) -> None:
    for named in (text + sign + text, sign + text, text + sign):
        is_adapter = named.partition("/")[0] in ADAPTERS
        assert list(find_names({"field": named})) or is_adapter


def test_only_the_fields_that_are_used_are_asked_for() -> None:
    run = Stored({"environment": "guess", "agent": "auto", "preferences": "/x/pairs.jsonl"})
    assert admit(run, is_trusted=False, to="evaluating", fields=("environment", "agent", "eval_environment"))
    with pytest.raises(ConfigError, match=r"preferences: the file /x/pairs.jsonl"):
        admit(run, is_trusted=False, to="resuming")


def test_ones_own_run_is_not_asked_for_unless_its_files_would_be_others(tmp_path: Path) -> None:
    here = Maker(is_own=True, made_in=str(Path.cwd()))
    there = Maker(is_own=True, made_in="/elsewhere")
    for spec in ("shop.py:Shop", "mcp/shop.json", "endpoint?command=python agent.py", "tasks:@t.jsonl"):
        assert admit(Stored({"environment": spec}, origin=here), is_trusted=False, to="evaluating")
        with pytest.raises(
            ConfigError, match=r"you made it in /elsewhere, from where its files would be others"
        ):
            admit(Stored({"environment": spec}, origin=there), is_trusted=False, to="evaluating")
    for spec in (
        "/x/shop.py:Shop",
        "shop.envs:Shop",
        "desk?user=http://h/v1",
        "worker/guess?python=python3.11",
    ):
        assert admit(Stored({"environment": spec}, origin=there), is_trusted=False, to="evaluating")


def test_what_lies_in_the_run_is_asked_for_even_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("")
    here = Maker(is_own=True, made_in=str(Path.cwd()))
    for spec in (
        f"{tmp_path}/evil.py:X",
        f"endpoint?command=python {tmp_path}/evil.py",
        f"mcp/{tmp_path}/evil.py",
    ):
        with pytest.raises(ConfigError, match=r"evil\.py"):
            admit(Stored({"agent": spec}, folder=tmp_path, origin=here), is_trusted=False, to="evaluating")


def test_a_refusal_is_one_line_whatever_is_named() -> None:
    run = Stored({f"f{n}": f"/x\x1b[2J\n{'y' * 200}" for n in range(9)})
    with pytest.raises(
        ConfigError, match=r"f0: the file /x\\u001b\[2J y+….*; f3: .* and 5 more; if you trust"
    ) as raised:
        admit(run, is_trusted=False, to="resuming")
    assert "\n" not in str(raised.value) and "\x1b" not in str(raised.value)
    with pytest.raises(ConfigError, match="give known=0"):
        admit(run, is_trusted=False, to="resuming", otherwise="give known=0")


def test_keys_that_are_paths_are_asked_for() -> None:
    assert list(find_names({"seats": {"agent/plan": "policy"}})) == []
    assert list(find_names({"policies": {"../../x": "policy"}})) == [
        Named(field="policies", kind="text", text="../../x")
    ]


def test_files_that_must_stay_the_same_are_found(tmp_path: Path) -> None:
    for name in ("tasks.jsonl", "shop.py", "t.jinja", "shop.json", "k"):
        (tmp_path / name).write_text("")
    found = files_named(
        {
            "environment": f"tasks:{tmp_path}/shop.py:Shop@{tmp_path}/tasks.jsonl",
            "eval_environment": f"mcp/{tmp_path}/shop.json?x=1",
            "chat_template": str(tmp_path / "t.jinja"),
            "agent": f"endpoint?command={tmp_path}/shop.py",
            "judge": f"http://h/v1?key_file={tmp_path}/k",
            "model": str(tmp_path),
        }
    )
    assert [file.name for file in found] == ["tasks.jsonl", "shop.py", "shop.json", "t.jinja"]
