"""What rows that train nothing do on real input: the parts that need none of it."""

import ast

from quintain_evidence.promises import agentable

SOURCE = '''
@tool
def find(name: str) -> str:
    """Find an order by its name."""
    return name

def run(client, messages):
    try:
        return client.create(model="m", messages=messages, temperature=0, max_tokens=3)
    except OSError:
        return prepare._request(model="m", messages=[{"role": "user", "content": "Hello"}])
'''


def test_a_defect_is_put_into_each_place_and_found() -> None:
    tree = ast.parse(SOURCE)
    places = list(agentable.find_places(tree))
    assert sorted(kind for kind, _ in places) == ["no description", "range", "swallowed", "unfilled"]
    for kind, number in places:
        rule = agentable.RULES[kind]
        assert agentable.count(agentable.put_defect(tree, number, kind), rule) > agentable.count(
            tree, rule
        ), kind
