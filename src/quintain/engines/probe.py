"""One question to each model behind an endpoint, before anything is written.

A judge, a proposer or a teacher that does not answer would be found out after the first evaluation, when a run has
been made. So each option of a configuration that is the address of one is asked at the start, whichever option it is.
Where a tape holds answers nobody is asked: the run may need nobody.
"""

from __future__ import annotations

from collections.abc import Mapping

from quintain.config.spec import options_from, split_query
from quintain.engines.chat_client import OPTIONS, ChatSpec, is_endpoint
from quintain.engines.judge import Judge
from quintain.errors import EngineFault
from quintain.processes.http_json import HttpTrouble

JUDGES = frozenset({"judge", "reward_model"})
"""Options whose endpoint judges, and must do so in form."""
QUESTION = "Answer with the one word yes."


def probe_endpoints(options: Mapping[str, object]) -> None:
    """Ask each endpoint among the values of `options` once.

    Raises:
        UsageError: it is no such address, or its key cannot be read.
        DataError: its tape is broken.
        EngineFault: it does not answer before its deadline, or not as such an endpoint does.
    """
    for name, value in options.items():
        if isinstance(value, str) and is_endpoint(value):
            probe_endpoint(name, value)


def probe_endpoint(name: str, address: str) -> None:
    """Ask the endpoint at `address`, which the option `name` gives; raises as `probe_endpoints` does."""
    if name in JUDGES:
        Judge(address, usual="Is the answer right?").probe()
        return
    given = split_query(address.partition("?")[2], name)
    others = options_from({option: str for option, _ in given if option not in OPTIONS})
    spec = ChatSpec.read(address, asked=name, more=others)
    if not spec.has_answers:
        try:
            spec.client(has_tape=False).reply([{"role": "user", "content": QUESTION}])
        except HttpTrouble as trouble:
            raise EngineFault(
                f"{name} at {spec.url}: got {trouble.got}; check the endpoint; nothing was written"
            ) from trouble
