"""What a load test says, in lines and in numbers."""

from collections.abc import Sequence

from quintain.rollout.load import MAX_FAILURES, Load, percentile
from quintain.types.findings import Finding


def load_lines(found: Load) -> tuple[list[Finding], dict[str, float]]:
    """Return what was looked at, and the figures."""
    failed = sum(found.failures.values())
    by_kind = "".join(f"; {kind} {num}" for kind, num in sorted(found.failures.items()))
    first = f"; the first: {found.first}" if found.first else ""
    left = ", ".join(f"{count} {name}" for name, count in found.left.items())
    lines = [
        Finding(
            "instances",
            "pass",
            f"{found.instances} at once: {found.episodes} episodes, "
            f"{len(found.steps):,} steps in {found.seconds:.1f} s",
        ),
        Finding(
            "failures",
            "fail" if found.failure_share > MAX_FAILURES else "pass",
            f"{failed} of {found.episodes} episodes ({found.failure_share:.1%}){by_kind}{first}",
        ),
        Finding("starts", "pass", latency(found.starts)),
        Finding("steps", "pass", latency(found.steps)),
        Finding("memory", "pass", f"{found.memory / 2**20:.1f} MiB per instance"),
        Finding(
            "closing", "fail" if left else "pass", f"{left} left behind" if left else "nothing left behind"
        ),
    ]
    measured = {
        "instances": float(found.instances),
        "episodes": float(found.episodes),
        "failure_share": found.failure_share,
        "steps_per_second": len(found.steps) / max(found.seconds, 1e-9),
        "memory_bytes": float(found.memory),
    }
    for name, values in (("start", found.starts), ("step", found.steps)):
        measured |= {f"{name}_p50": percentile(values, 0.5), f"{name}_p95": percentile(values, 0.95)}
    return lines, measured


def latency(seconds: Sequence[float]) -> str:
    """Return the middle and the slow end of `seconds` in words."""
    return f"p50 {1e3 * percentile(seconds, 0.5):.3g} ms, p95 {1e3 * percentile(seconds, 0.95):.3g} ms"
