"""The lint of agents: each defect is found in a source that has it, and its clean twin has none."""

from pathlib import Path

import pytest

from quintain.cli.main import main
from quintain.errors import UsageError
from quintain.safety.lint import lint_agent, lint_source

HEAD = '''
from agents import function_tool
from openai import OpenAI
client = OpenAI(timeout=20)

def ask(messages, tools=()):
    """Ask the model."""
    return client.chat.completions.create(model="m", messages=messages, max_tokens=9).choices[0].message
'''
SAY = '@function_tool\ndef f(x: int) -> str:\n    """Say what it is."""'
PAIRS: dict[str, tuple[str, str, str]] = {
    "no description": (
        "tool description",
        "@function_tool\ndef find(name: str) -> str:\n    return name\n",
        '@function_tool\ndef find(name: str) -> str:\n    """Find a customer by name."""\n    return name\n',
    ),
    "no type": (
        "tool description",
        '@function_tool\ndef find(name) -> str:\n    """Find a customer by name."""\n    return name\n',
        '@function_tool\ndef find(ctx, name: str) -> str:\n    """Find a customer by name."""\n    return name\n',
    ),
    "registered elsewhere": (
        "tool description",
        "def find(name: str) -> str:\n    return name\nmine = [find]\nrun(tools=mine)\n",
        "def find(name: str) -> str:\n    return name\nmine = [find]\nrun(others=mine)\n",
    ),
    "same description": (
        "tool description",
        'def a(x: int) -> str:\n    """Look it up."""\n    return ""\n'
        'def b(x: int) -> str:\n    """Look it up."""\n    return ""\nrun(tools=[a, b])\n',
        'def a(x: int) -> str:\n    """Look it up."""\n    return ""\n'
        'def b(x: int) -> str:\n    """Look it up slowly."""\n    return ""\nrun(tools=(a, b))\n',
    ),
    "schema": (
        "tool description",
        'T = {"name": "find", "parameters": {}}\n',
        'T = {"name": "find", "description": "Find a customer.", "parameters": {}}\n',
    ),
    "schema twice": (
        "tool description",
        'T = [{"name": "find", "description": "Find a customer.", "parameters": {}},\n'
        ' {"name": "find", "description": "Find an order.", "parameters": {}}]\n',
        'T = [{"name": "find", "description": "Find a customer.", "parameters": {}},\n'
        ' {"name": "order", "description": "Find an order.", "parameters": {}}]\n',
    ),
    "empty path": (
        "tool result",
        f'{SAY}\n    if x:\n        return\n    return "a"\n',
        f'{SAY}\n    if x:\n        return "b"\n    return "a"\n',
    ),
    "falls off": (
        "tool result",
        f'{SAY}\n    if x:\n        return "a"\n',
        f'{SAY}\n    try:\n        return "a"\n    except OSError:\n        raise\n',
    ),
    "parsed": (
        "output parsing",
        "import json\ndef run(text):\n    return json.loads(text)\n",
        "import json\ndef run(text):\n    try:\n        return json.loads(text)\n"
        "    except ValueError:\n        return {}\n",
    ),
    "parsed, not from a file": (
        "output parsing",
        "import json\ndef run(text):\n    return json.loads(text)\n",
        "import json\ndef run(path):\n    return json.loads(path.read_text())\n",
    ),
    "split": (
        "output parsing",
        'def run(text):\n    return text.split(":")[1]\n',
        'def run(text):\n    return text.split(":")[-1]\n',
    ),
    "stop word": (
        "stop word",
        'client.responses.create(model="m", input="x", stop=["END"], max_tokens=3)\n'
        f'{SAY}\n    return "THE END"\n',
        'client.responses.create(model="m", input="x", stop=["###"], max_tokens=3)\n'
        f'{SAY}\n    return "THE END"\n',
    ),
    "swallowed": (
        "fault tolerance",
        "try:\n    ask([])\nexcept Exception:\n    pass\n",
        "try:\n    ask([])\nexcept ValueError:\n    pass\n",
    ),
    "endless": (
        "fault tolerance",
        'while True:\n    client.chat.completions.create(model="m", messages=[], max_tokens=3)\n',
        "n = 0\nwhile True:\n    n += 1\n    if n > 9:\n        break\n"
        '    client.chat.completions.create(model="m", messages=[], max_tokens=3)\n',
    ),
    "endless through a function": (
        "fault tolerance",
        "while True:\n    ask([])\n",
        "while True:\n    other.ask([])\n",
    ),
    "endless through a method": (
        "fault tolerance",
        "class A:\n    def once(self):\n        return ask([])\n    def run(self):\n"
        "        while True:\n            self.once()\n",
        "class A:\n    def once(self):\n        return ask([])\n    def run(self):\n"
        "        for _ in range(3):\n            self.once()\n",
    ),
    "parsed under another name": (
        "output parsing",
        "from json import loads as read\ndef run(text):\n    return read(text)\n",
        "from yours import loads as read\ndef run(text):\n    return read(text)\n",
    ),
    "a setting at the top": (
        "model interface",
        'HOT = 7\nclient.chat.completions.create(model="m", messages=[], max_tokens=3, temperature=HOT)\n',
        'HOT = 1\nclient.chat.completions.create(model="m", messages=[], max_tokens=3, temperature=HOT)\n',
    ),
    "a message at the top": (
        "prompt",
        'TEXT = "Hello {name}"\nM = [{"role": "user", "content": TEXT}]\n',
        'TEXT = "Hello {name}"\nM = [{"role": "user", "content": TEXT.format(name=1)}]\n',
    ),
    "handed over by a comprehension": (
        "tool description",
        "def find(name: str) -> str:\n    return name\nrun(tools=[each for each in (find,)])\n",
        "def find(name: str) -> str:\n    return name\nrun(tools=[find(each) for each in (1,)])\n",
    ),
    "no timeout": ("fault tolerance", "other = OpenAI()\n", "other = OpenAI(timeout=3)\n"),
    "range": (
        "model interface",
        'client.chat.completions.create(model="m", messages=[], max_tokens=3, temperature=7)\n',
        'client.chat.completions.create(model="m", messages=[], max_tokens=3, temperature=0.7)\n',
    ),
    "calls unread": (
        "model interface",
        'client.chat.completions.create(model="m", messages=[], max_tokens=3, tools=T)\n',
        'said = client.chat.completions.create(model="m", messages=[], max_tokens=3, tools=T)\n'
        "print(said.tool_calls)\n",
    ),
    "no limit": (
        "model and context",
        'client.chat.completions.create(model="m", messages=[])\n',
        'client.chat.completions.create(model="m", messages=[], **more)\n',
    ),
    "no model": (
        "model and context",
        'client.chat.completions.create(model="", messages=[], max_tokens=3)\n',
        "client.chat.completions.create(model=name, messages=[], max_tokens=3)\n",
    ),
    "placeholder": (
        "prompt",
        'M = [{"role": "user", "content": "Hello {name}"}]\n',
        'M = [{"role": "user", "content": f"Hello {name}"}, {"role": "user", "content": "{{name}}"}]\n',
    ),
    "eval": ("hardening", "eval(text)\n", "model.eval()\nsuper().exec(text)\n"),
    "shell": ("hardening", "subprocess.run(text, shell=True)\n", "subprocess.run([text], shell=False)\n"),
    "certificates": ("hardening", "get(url, verify=False)\n", "get(url, verify=True)\n"),
    "everybody": ("hardening", 'serve(host="0.0.0.0")\n', 'serve(host="127.0.0.1")\n'),
    "key": ("hardening", 'KEY = "sk-abcdefghijklmnop1234"\n', 'KEY = open("key").read()\n'),
    "key of its own": (
        "hardening",
        'KEY = "hf_abcdefghijklmnop1234"\n',
        'KEY = "a task-abcdefghijklmnop1234"\n',
    ),
    "yaml": ("hardening", "yaml.load(text)\n", "yaml.load(text, Loader=yaml.SafeLoader)\n"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_defect_is_found_where_it_is_and_its_clean_twin_has_none(name: str) -> None:
    rule, dirty, clean = PAIRS[name]
    assert {finding.name for finding in lint_source(HEAD + dirty, "a.py")} == {rule}
    assert lint_source(HEAD + clean, "a.py") == []


def test_a_finding_says_the_line_and_the_mend() -> None:
    (found,) = lint_source("x = 1\neval(text)\n", "a.py")
    assert found == (
        "hardening",
        "fail",
        "a.py:2: eval evaluates text; use a sandbox, or data that cannot run",
    )


def test_what_always_ends_is_no_fault() -> None:
    body = (
        "    if x:\n        return 'a'\n    else:\n        with y:\n            return 'b'\n",
        "    match x:\n        case 1:\n            return 'a'\n        case _:\n            return 'b'\n",
        "    while True:\n        return 'a'\n",
    )
    for each in body:
        assert lint_source(f"{SAY}\n{each}", "a.py") == []
    missing = f'{SAY}\n    match x:\n        case 1:\n            return "a"\n'
    assert [finding.name for finding in lint_source(missing, "a.py")] == ["tool result"]


def test_a_source_that_does_not_parse_is_a_finding() -> None:
    (found,) = lint_source("def f(:", "a.py")
    assert (found.name, found.state) == ("source", "fail")


def test_a_folder_is_read_with_its_requirements(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    assert [finding.state for finding in lint_agent(tmp_path)] == ["pass"]
    (tmp_path / "requirements.txt").write_text("openai\n# all\nhttpx==0.28\n-r more.txt\n")
    (found,) = lint_agent(tmp_path)
    assert found == ("dependency", "note", "requirements.txt:1: openai has no version; pin it with ==")
    with pytest.raises(UsageError, match="no Python file"):
        lint_agent(tmp_path / "none")


def test_the_command_ends_with_1_on_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "agent.py"
    file.write_text("eval(text)\n")
    assert main(["check", str(file), "--profile", "production"]) == 1
    assert "hardening\tfail\tagent.py:1" in capsys.readouterr().out
    file.write_text("x = 1\n")
    assert main(["check", str(file), "--profile=production"]) == 0
    assert main(["check", str(file), "--profile", "prod"]) == 2


def test_our_own_harnesses_have_no_finding() -> None:
    import quintain

    assert [each.state for each in lint_agent(Path(quintain.__file__).parent / "agents")] == ["pass"]


def test_a_source_that_python_could_not_decode_is_a_finding(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b'NAME = "caf\xe9"\n')
    (found,) = lint_agent(file)
    assert (found.name, found.state) == ("source", "fail")
    file.write_bytes(b'# coding: latin-1\nNAME = "caf\xe9"\n')
    assert [finding.state for finding in lint_agent(file)] == ["pass"]


def test_a_loop_that_may_be_left_gives_no_result() -> None:
    body = "    while True:\n        if x:\n            break\n        return 'a'\n"
    assert [finding.name for finding in lint_source(HEAD + SAY + "\n" + body, "a.py")] == ["tool result"]
    body = "    while True:\n        for x in y:\n            break\n        return 'a'\n    spare = 1\n"
    assert lint_source(HEAD + SAY + "\n" + body, "a.py") == []
