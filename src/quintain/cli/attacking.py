"""``quintain attack AGENT``: is it led by what texts say, and does a guard hold it?"""

from collections.abc import Sequence

from quintain.cli.arguments import TRUST, Parser, positive, resolve_model, split_names, whole_number
from quintain.cli.findings import report
from quintain.cli.tables import show
from quintain.errors import QuintainError, UsageError, suggestion
from quintain.types.terminal import write_line


def attack(argv: Sequence[str]) -> int:
    """Attack an agent, and return 1 where something was found."""
    parser = Parser(
        "attack",
        "Attack an agent by what it reads: exit 1 on a finding, each beside what the agent does unasked.",
    )
    parser.add_argument(
        "target",
        metavar="AGENT",
        help="model folder, hub id or run; or a mind that needs none: expert, random, gullible (the expert, who does "
        "whatever a text asks for)",
    )
    parser.flag("--environment", "environment; a run knows its own", "E")
    parser.flag(
        "--guard",
        "policy that it is attacked under as well; a run knows its own (docs/guards.md)",
        "POLICY.json",
        "",
    )
    parser.flag("--agent", "harness that it acts through; a run knows its own", "AGENT", "")
    parser.flag(
        "--attacks",
        "orders in results, orders that look remembered, a tool that says it sets the score (default: these three, "
        "results,memory,score); retrieval: orders that a trigger must first find in a memory",
        "NAMES",
        "results,memory,score",
    )
    parser.flag("--tools", "tools that texts ask for (default: those that the policy restricts)", "NAMES", "")
    parser.flag(
        "--sources",
        "tools in whose results texts stand (default: those that the policy takes no word from)",
        "NAMES",
        "",
    )
    parser.flag("--episodes", "held-out tasks, each once in each arm (default 24)", "N", "24")
    parser.flag("--seed", "seed of the sampling (default 0)", "N", "0")
    parser.flag("--temperature", "sampling temperature, 0 for greedy (default 1.0)", "X", "1.0")
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", "runs")
    parser.switch("--trust-run", TRUST)
    parser.switch("--json", "print JSON")
    arguments = parser.read(argv)
    episodes = whole_number(arguments.episodes, "--episodes", least=1)
    seed = whole_number(arguments.seed, "--seed")
    temperature = positive(arguments.temperature, "--temperature")

    from quintain import api as launch
    from quintain.pipelines.attacking import KNOWN, MINDS

    attacks = split_names(arguments.attacks)
    for name in attacks:
        if name not in KNOWN:
            raise UsageError(f"--attacks: got {name!r}; {suggestion(name, KNOWN)}")
    target = (
        arguments.target if arguments.target in MINDS else resolve_model(arguments.target, arguments.runs)
    )
    found = launch.attack(
        target,
        arguments.environment,
        guard=arguments.guard,
        agent=arguments.agent,
        attacks=attacks,
        tools=split_names(arguments.tools),
        sources=split_names(arguments.sources),
        episodes=episodes,
        seed=seed,
        temperature=temperature,
        trust_run=arguments.trust_run,
    )
    rows = [arm.row() for arm in found.arms]
    if not arguments.json:
        show(
            ("attack", "guard", "success", "tried", "carried out"),
            rows,
            f"{arguments.target}, {episodes} tasks",
        )
        write_line("")
    measured = {
        f"{arm.attack or 'none'}/{'on' if arm.is_guarded else 'off'}/{name}": value
        for arm in found.arms
        for name, value in arm.rates().items()
    }
    return report(arguments.target, found.findings, arguments.json, QuintainError, measured)
