"""``quintain environments serve E``: a world of ours, offered over the OpenEnv or the AgentGym protocol.

It listens on this machine only, unless it is told otherwise and given a token. The address is printed once everything
works, and Ctrl-C closes what was started.
"""

from collections.abc import Sequence

from quintain.cli.arguments import Parser, one_of, whole_number

PORTS = {"openenv": 8000, "agentgym": 36001}
"""The protocols, each with the port that its own servers use."""


def serve(argv: Sequence[str]) -> int:
    """Offer an environment until interrupted."""
    from quintain.environments.rehearsal import find_ready

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
    arguments = parser.read(argv)
    protocol = one_of(arguments.protocol, "--protocol", PORTS)
    port = PORTS[protocol] if arguments.port is None else whole_number(arguments.port, "--port")
    most = whole_number(arguments.instances, "--instances", least=1)

    from quintain.environments.extras import extra_module
    from quintain.processes.http_json import key_in

    for package in ("starlette", "uvicorn", "websockets"):
        extra_module(package, package=package, extra="serve", feature="quintain environments serve")
    from quintain.serve.agentgym import agentgym_app
    from quintain.serve.listener import Listener
    from quintain.serve.openenv import openenv_app

    make = find_ready(arguments.environment)
    token = key_in(arguments.token_file)
    app = agentgym_app if protocol == "agentgym" else openenv_app
    listener = Listener(
        app(make, most=most), host=arguments.host, port=port, token=token, also=arguments.allow_host
    ).start()
    told = ", a token is needed" if token else ""
    print(f"{make.spec} over {protocol} at {listener.url}{told}; Ctrl-C stops it", flush=True)
    try:
        listener.run_until_closed()
    finally:
        listener.close()
    return 0
