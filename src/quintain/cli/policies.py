"""``quintain policy ENVIRONMENT --by URL``: have a model write a policy for an environment's tools."""

import json
from collections.abc import Sequence
from pathlib import Path

from quintain.cli.arguments import Parser
from quintain.errors import UsageError
from quintain.types.terminal import write_command, write_line


def policy(argv: Sequence[str]) -> int:
    """Write a policy that a model behind an endpoint proposes, checked, and no wider than another."""
    parser = Parser(
        "policy",
        "Have a model behind an endpoint write a policy for the tools of an environment (docs/guards.md).",
    )
    parser.add_argument("environment", metavar="ENVIRONMENT", help="environment whose tools it is for")
    parser.flag("--by", "who writes it: base URL of a chat endpoint, with its options", "URL")
    parser.flag("--out", "file to write", "POLICY.json", "policy.json")
    parser.flag("--task", "what the user wants, in words; the policy is then for this task", "TEXT", "")
    parser.flag("--within", "policy that it may only narrow", "POLICY.json", "")
    arguments = parser.read(argv)
    if not arguments.by:
        raise UsageError("quintain policy: got no --by; give the base URL of a chat endpoint that writes it")
    out = Path(arguments.out)
    if out.suffix != ".json" or out.exists():
        raise UsageError(f"--out: got {arguments.out}; name a new .json file")

    from quintain.engines.chat_client import ChatSpec
    from quintain.environments.boundary import ask
    from quintain.environments.smoke_test import find_ready
    from quintain.pipelines.policy_writer import write_policy
    from quintain.safety.policy import ORDER, read_order_of, read_policy
    from quintain.store.files import replace_file

    wide = read_policy(arguments.within) if arguments.within else None
    if arguments.within and read_order_of(arguments.within) is not None:
        raise UsageError(f"--within: got {arguments.within}, which has an {ORDER}; give rules alone")
    spec = ChatSpec.read(arguments.by, asked="policy")
    client = spec.client()
    tools, instructions = ask(
        find_ready(arguments.environment), lambda made: (made.tools(), made.instructions())
    )
    if not tools:
        raise UsageError(
            f"quintain policy: got {arguments.environment}, which has no tools; nothing is to be allowed"
        )
    try:
        found = write_policy(
            client, tools, instructions, task=arguments.task, wide=wide, temperature=spec.temperature
        )
    finally:
        client.close()
    replace_file(out, (json.dumps(found, indent=2, ensure_ascii=False) + "\n").encode())
    left_out = [tool.name for tool in tools if tool.name not in found]
    write_line(
        f"{out}: {len(found)} of {len(tools)} tools may be called; not: {', '.join(left_out) or 'none'}"
    )
    write_line(f"look: {write_command('quintain', 'check', arguments.environment, '--guard', out)}")
    return 0
