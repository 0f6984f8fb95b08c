"""What credit over memories points to, in expectation, beside the exact gradient.

``python evidence/studies/memory_credit.py`` prints the table; nothing is sampled, as the game (`labs.relay`) is
enumerated. A row is a way to credit, a column the cosine of its expected update with the gradient of success: in all
prompts, in those of the first memory, in those where it may be written anew or an answer given, and in those where an
answer is all there is. MEM1's λ is from one token to the next: over a memory of n tokens it is λ to the power of n.
"""

import torch

from quintain_evidence.labs.relay import (
    FIRST,
    LAST,
    SECOND,
    credit_last,
    credit_rows,
    direction,
    expect,
    memagent,
    population,
    start,
    state_learner,
    true_gradient,
    with_numbers,
)
from quintain_evidence.labs.tabular import TablePolicy, cosine

LAMBDAS = (
    (1.0, "λ = 1"),
    (0.95, "λ = .95, memories of a token"),
    (0.95**16, "λ = .95, memories of 16 tokens"),
)


def main() -> None:
    """Print the table."""
    policy = start()
    blind = TablePolicy(policy.world, policy.theta, torch.zeros(policy.world.num_states))
    found = {
        "MemAgent, groups of two": expect(policy, memagent()),
        "MemAgent, mean over the tokens of a step of two episodes": expect(policy, memagent("token_mean")),
        "the last conversation alone": expect(policy, with_numbers(memagent(), credit_last)),
        "mean over the rows of all conversations": expect(policy, with_numbers(memagent(), credit_rows)),
    }
    for gae_lambda, told in LAMBDAS:
        for actor, critic in ((policy, "the best critic of prompts"), (blind, "a critic that says 0")):
            found[f"MEM1, {told}, {critic}"] = direction(actor, state_learner(gae_lambda), population(actor))
    exact = true_gradient(policy)
    print("| credit | all | first memory | second turn | last answer |\n|---|---|---|---|---|")
    for name, update in found.items():
        parts = [cosine(update[rows], exact[rows]) for rows in (slice(None), FIRST, SECOND, LAST)]
        print(f"| {name} | {' | '.join(f'{value:.4f}' for value in parts)} |")


if __name__ == "__main__":
    main()
