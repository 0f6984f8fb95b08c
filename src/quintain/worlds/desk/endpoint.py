"""The customer played by a language model behind any OpenAI-compatible endpoint.

Each message has one deadline for all attempts; what is worth repeating (no connection, 429, 5xx, an unreadable
answer) is repeated, the rest is not. An endpoint that fails is the engine's fault and raises `UserFault`, so that the
episode becomes a `Failure` and never a score.
"""

import threading
from weakref import WeakValueDictionary

from quintain.engines.chat_client import ChatClient, Spending
from quintain.environments.dialogue import STOP, Line, UserFault
from quintain.errors import UsageError
from quintain.processes.http_json import HttpTrouble, check_url, key_in
from quintain.worlds.desk.case import Case
from quintain.worlds.desk.user import OTHERS, WISHES, Dialogue

LONGEST_REPLY = 2000
"""Characters of a reply that are kept."""
CLIENTS: WeakValueDictionary[tuple[object, ...], ChatClient] = WeakValueDictionary()
"""Clients of desks that are open, by what they were made with: those of a run have one budget and one tape."""
CLIENTS_LOCK = threading.Lock()
GREETING: Line = ("agent", "Hello, how can I help?")
"""What the desk is taken to have said before the customer's first words."""
RULES = (
    "You play a customer who talks to a help desk. Say one short sentence at a time. Say only what you are asked "
    "for, and nothing that is not in your role. Do not invent anything. When the desk says that all is done, "
    f"answers your question or refuses for good, answer with {STOP} and nothing after it. Your role: "
)


class EndpointUser:
    """Asks ``POST {url}/chat/completions``: ``EndpointUser("http://127.0.0.1:8000/v1", model="qwen")``."""

    def __init__(
        self,
        url: str,
        *,
        model: str,
        key_file: str = "",
        deadline: float = 20.0,
        tape: str = "",
        replays: bool = False,
        budget: Spending | None = None,
    ) -> None:
        """Prepare to ask; nothing is sent yet. The key is the first word of `key_file`.

        What `tape` holds is not asked again, and with `replays` nothing else is heard; see
        `quintain.engines.chat_client`. Users of a process that are made alike share their budget and their tape.

        Raises:
            UsageError: `url` is no http(s) URL, the key cannot be read, the deadline is not positive, or there is no
                tape to replay.
            DataError: the tape is broken.
        """
        advice = "give scripted, or a base URL such as http://127.0.0.1:8000/v1"
        url = check_url(url, is_whole=True, asked="desk: got user=", advice=advice)
        if not 0 < deadline < float("inf"):
            raise UsageError(f"desk: got user_deadline={deadline}; give a positive number of seconds")
        key = key_in(key_file, asked="desk: got user_key_file=")
        self.model = model
        settings = (url, model, key, deadline, tape, replays, budget)
        with CLIENTS_LOCK:
            found = CLIENTS.get(settings)
            if found is None:
                found = ChatClient(
                    url, model=model, key=key, deadline=deadline, tape=tape, replays=replays, budget=budget
                )
                CLIENTS[settings] = found
        self._client = found
        self.url = self._client.url

    def opening(self, case: Case) -> str:
        """See `User.opening`."""
        return self._ask(case, ())

    def reply(self, case: Case, dialogue: Dialogue) -> str:
        """See `User.reply`."""
        return self._ask(case, dialogue)

    def _ask(self, case: Case, dialogue: Dialogue) -> str:
        """Return the model's reply.

        Raises:
            UserFault: there was none before the deadline.
        """
        try:
            return self._client.ask(messages(case, dialogue))[:LONGEST_REPLY]
        except HttpTrouble as trouble:
            raise UserFault.of(trouble.kind, self.url, trouble.got) from trouble


def messages(case: Case, dialogue: Dialogue) -> list[dict[str, str]]:
    """Return the chat as the model that plays the user sees it: the desk is its user."""
    roles = {"agent": "user", "user": "assistant"}
    talk = [{"role": roles[speaker], "content": text} for speaker, text in (GREETING, *dialogue)]
    return [{"role": "system", "content": RULES + role_text(case)}, *talk]


def role_text(case: Case) -> str:
    """Return the hidden role of the customer, in words."""
    if case.kind == "other":
        return f"You are {case.name}. {OTHERS[case.window * case.order % len(OTHERS)]}"
    order = f"the {case.item}" if case.is_vague else f"order {case.order}"
    role = f'You are {case.name}. "{WISHES[case.kind][0]}" It is about {order}.'
    if case.value:
        role += f" You want: {case.first_value}."
        if case.first_value != case.value:
            role += f" When you are asked to confirm, you want {case.value} instead."
    return role + (" When you are refused, insist once." if case.is_pushy else "")
