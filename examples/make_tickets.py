"""Writes tickets.jsonl, the file of tasks of triage_agent.py: who, what was ordered, and one of 24 complaints.

``python examples/make_tickets.py > examples/tickets.jsonl``
"""

import json
import random

NAMES = ("Ana", "Ben", "Chloe", "Dev", "Elif", "Finn", "Gita", "Hugo", "Ines", "Jun")
GOODS = ("chair", "jacket", "kettle", "lamp", "phone", "table", "radio", "bag")
COMPLAINTS = {
    "billing": (
        "I was charged twice.",
        "my card was declined.",
        "please send the receipt.",
        "the discount is missing.",
        "the invoice is wrong.",
        "you took too much money.",
    ),
    "delivery": (
        "it went to the wrong address.",
        "my parcel has not arrived.",
        "the box is stuck at customs.",
        "the courier never came.",
        "the tracking number is unknown.",
        "when will it be shipped.",
    ),
    "account": (
        "I cannot log in.",
        "delete my profile.",
        "my email has changed.",
        "please reset my password.",
        "somebody else uses my login.",
        "the code for sign in never comes.",
    ),
    "returns": (
        "I want to send it back.",
        "I would like to exchange it.",
        "it came broken.",
        "the colour is not what I ordered.",
        "the size does not fit.",
        "where is the return label.",
    ),
}
EACH = 25
"""Tickets of a complaint, each of somebody else or about something else."""


def make_tickets(seed=0):
    """Yield a row for each ticket, in an order that says nothing of its queue."""
    rng = random.Random(seed)
    orders = [(name, good) for name in NAMES for good in GOODS]
    tickets = [
        (f"{name}, order of a {good}: {complaint}", queue)
        for queue, complaints in COMPLAINTS.items()
        for complaint in complaints
        for name, good in rng.sample(orders, EACH)
    ]
    rng.shuffle(tickets)
    for number, (prompt, queue) in enumerate(tickets, 1):
        yield {"id": f"t{number:03}", "prompt": prompt, "queue": queue}


if __name__ == "__main__":
    for ticket in make_tickets():
        print(json.dumps(ticket))
