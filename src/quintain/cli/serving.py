"""``quintain environments serve E``: a world of ours, offered over the OpenEnv or the AgentGym protocol; and
``quintain serve MODEL|RUN``: a model, for agents that speak OpenAI's or Anthropic's protocols.

Each listens on this machine only, unless it is told otherwise and given a token. The address is printed once everything
works, and Ctrl-C or SIGTERM closes what was started.
"""

from collections.abc import Sequence
from contextlib import suppress

from quintain.cli.arguments import ACCEPT, Parser, new_folder, one_of, positive, resolve_model, whole_number
from quintain.types.terminal import write_line

MODEL_PORT = 8100

PORTS = {"openenv": 8000, "agentgym": 36001}
"""The protocols, each with the port that its own servers use."""


def serve(argv: Sequence[str]) -> int:
    """Offer an environment until interrupted."""
    from quintain.environments.smoke_test import find_ready

    parser = Parser("environments serve", "Offer an environment to clients of OpenEnv or AgentGym.")
    parser.add_argument("environment", metavar="E", help="environment: see quintain environments")
    parser.flag("--protocol", "openenv (default) or agentgym", "PROTOCOL", "openenv")
    parser.flag(
        "--host", "address to listen at (default 127.0.0.1); others need --token-file", "HOST", "127.0.0.1"
    )
    parser.flag("--port", "port to listen at (default 8000 for openenv, 36001 for agentgym; 0: any)", "PORT")
    parser.flag(
        "--token-file", "a file whose first word every request must carry as a bearer token", "FILE", ""
    )
    parser.flag("--allow-host", "further names by which clients reach this machine, with commas", "HOSTS", "")
    parser.flag("--instances", "most instances at once (default 64)", "N", "64")
    parser.flag(
        "--guard", "policy that says which tool calls are carried out (docs/guards.md)", "POLICY.json"
    )
    arguments = parser.read(argv)
    protocol = one_of(arguments.protocol, "--protocol", PORTS)
    port = PORTS[protocol] if arguments.port is None else whole_number(arguments.port, "--port")
    most = whole_number(arguments.instances, "--instances", least=1)

    from quintain.environments.extras import extra_module
    from quintain.environments.guarding import guard_spec
    from quintain.processes.http_json import key_in

    for package in ("starlette", "uvicorn", "websockets"):
        extra_module(package, package=package, extra="serve", feature="quintain environments serve")
    from quintain.serve.agentgym import agentgym_app
    from quintain.serve.listener import Listener
    from quintain.serve.openenv import openenv_app

    guarded = arguments.guard is not None
    make = find_ready(
        guard_spec(arguments.environment, arguments.guard) if guarded else arguments.environment
    )
    token = key_in(arguments.token_file)
    app = agentgym_app if protocol == "agentgym" else openenv_app
    listener = Listener(
        app(make, most=most), host=arguments.host, port=port, token=token, also=arguments.allow_host
    ).start()
    told = ", a token is needed" if token else ""
    write_line(f"{make.spec} over {protocol} at {listener.url}{told}; Ctrl-C stops it")
    try:
        listener.run_until_closed()
    finally:
        listener.close()
    return 0


def serve_model(argv: Sequence[str]) -> int:
    """Serve a model to agents until interrupted."""
    parser = Parser("serve", "Serve a model to agents that take a base_url, and record every call.")
    parser.add_argument(
        "model",
        metavar="MODEL|RUN",
        help="model folder, hub id, or a run; of a step that is kept: RUN@best, RUN@75",
    )
    parser.flag("--record", "folder of a new run that keeps the episodes", "FOLDER")
    parser.flag(
        "--host", "address to listen at (default 127.0.0.1); others need --token-file", "HOST", "127.0.0.1"
    )
    parser.flag("--port", f"port to listen at (default {MODEL_PORT}; 0: any)", "PORT", str(MODEL_PORT))
    parser.flag(
        "--token-file", "a file whose first word is the api_key; without one a key is made", "FILE", ""
    )
    parser.flag("--allow-host", "further names by which clients reach this machine, with commas", "HOSTS", "")
    parser.flag(
        "--temperature",
        "of sampling where a client asks for none; with --record whatever clients ask for (default 1)",
        "X",
        "1",
    )
    parser.flag(
        "--max-tokens", "most tokens of an answer (default: what the client asks for, else 1024)", "N"
    )
    parser.flag("--chat-template", "file with a chat template in place of the model's own", "FILE", "")
    parser.flag("--template-options", "of the chat template, as enable_thinking=false", "OPTIONS", "")
    parser.flag(
        "--template-differs",
        "whether to serve where chats differ from what the template writes: allow (default) or refuse",
        "WORD",
        "allow",
    )
    parser.flag(
        "--guard", "policy whose refused calls are taken out of answers (docs/guards.md)", "POLICY.json", ""
    )
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", "runs")
    parser.switch("--accept-changes", ACCEPT)
    arguments = parser.read(argv)
    is_strict = one_of(arguments.template_differs, "--template-differs", ("allow", "refuse")) == "refuse"
    port = whole_number(arguments.port, "--port")
    temperature = positive(arguments.temperature, "--temperature")
    max_tokens = (
        None if arguments.max_tokens is None else whole_number(arguments.max_tokens, "--max-tokens", least=1)
    )
    out = None if arguments.record is None else new_folder(arguments.record, "--record")

    from quintain import api as launch
    from quintain.processes.http_json import key_in

    token = key_in(arguments.token_file)
    with launch.listening(
        resolve_model(arguments.model, arguments.runs), record=out, temperature=temperature, max_tokens=max_tokens,
        host=arguments.host, port=port, api_key=token, allow_host=arguments.allow_host,
        chat_template=arguments.chat_template, template_options=arguments.template_options,
        template_differs="refuse" if is_strict else "allow", accept_changes=arguments.accept_changes,
        guard=arguments.guard, feature="quintain serve",
    ) as (recording, served):  # fmt: skip
        write_line(f"{arguments.model} at {served.base_url('NAME')} (an episode for each NAME)")
        write_line(f"chat format: {served.chat_format}")
        told = f"the word in {arguments.token_file}" if token else served.api_key
        write_line(f"api_key: {told}; Ctrl-C stops it")
        how = (
            f"as clients ask, temperature {temperature:g} where they do not"
            if out is None
            else f"temperature {temperature:g}, whatever clients ask for, so that log-probs are of one distribution"
        )
        write_line(f"sampling: {how}")
        with suppress(KeyboardInterrupt):
            recording.run()
    if out is not None:
        write_line(f"episodes in {out}")
    return 0
