"""A3: out of the box into the network, and the one client we have into places where it has no business.

Whether a host outside could be reached is asked of the routing table, which sends nothing.
"""

import http.server
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from random import Random
from typing import Any

import httpx2
from tests.attacks.attack import Attack, Found, Scene, refused
from tests.attacks.box import SHARED_NETWORK, inside, shown

from quintain.engines import chat_client
from quintain.environments.dialogue import UserFault
from quintain.errors import UsageError
from quintain.processes import http_json
from quintain.worlds.desk import endpoint as user_endpoint
from quintain.worlds.desk.case import Shape, draw_case
from quintain.worlds.desk.endpoint import EndpointUser

ROUTES = {
    "the metadata of a cloud": ("AF_INET", "169.254.169.254", 80),
    "a name server": ("AF_INET", "8.8.8.8", 53),
    "a private network": ("AF_INET", "10.0.0.1", 80),
    "the network of containers": ("AF_INET", "172.17.0.1", 2375),
    "any host": ("AF_INET", "1.1.1.1", 443),
}
CONNECT = (
    "with socket.socket(socket.{family}) as found:\n    found.settimeout(5)\n    found.connect({address})\n"
    "return 'connected'"
)
KEY = "sk-canary-4f2e"
CASE = draw_case(
    Random(0),
    Shape(
        customers=2,
        orders=2,
        kinds=("cancel",),
        denied=0.0,
        vague=0.0,
        pushy=0.0,
        changes_of_mind=0.0,
        windows=(30,),
    ),
)


def routed(family: str, host: str, port: int) -> str:
    """Return code that asks whether there is a way to `host`; nothing is sent."""
    return (
        f"with socket.socket(socket.{family}, socket.SOCK_DGRAM) as found:\n    found.connect(({host!r}, {port}))\n"
        "    return found.getsockname()"
    )


class Served(http.server.BaseHTTPRequestHandler):
    """Answers as `answer` says and remembers what it was sent."""

    answer: tuple[int, dict[str, str], bytes] = (200, {}, b"")
    seen: list[tuple[str, str]]

    def do_POST(self) -> None:
        """Answer."""
        self.seen.append((self.headers.get("Authorization", ""), self.path))
        status, headers, body = self.answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def served(
    status: int, headers: dict[str, str], body: bytes = b""
) -> Generator[tuple[str, list[tuple[str, str]]]]:
    """Yield the URL of a server, and the keys and paths it is asked with."""
    seen: list[tuple[str, str]] = []
    kind = type("Kind", (Served,), {"answer": (status, headers, body), "seen": seen})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
        server.shutdown()
        thread.join(10.0)


def asked(url: str, scene: Scene) -> str:
    """Ask the endpoint at `url` with a key and return what it says of a failure."""
    key = scene.folder / "key"
    key.write_text(KEY)
    try:
        return EndpointUser(url, model="m", key_file=str(key), deadline=5.0).opening(CASE)
    except UserFault as error:
        return str(error)


def redirected(status: int) -> Callable[[Scene], Found]:
    """Return the attempt to lead the client, with its key, to another host."""

    def attempt(scene: Scene) -> Found:
        with (
            served(200, {}) as (elsewhere, seen),
            served(status, {"Location": f"{elsewhere}/stolen"}) as (url, _),
        ):
            said = asked(url, scene)
        return Found(bool(seen), str(seen) if seen else said)

    return attempt


def client_with(**options: Any) -> Callable[[Scene], None]:
    """Return the change that gives HTTP clients other `options`."""

    def change(scene: Scene) -> None:
        scene.patch.setattr(
            httpx2, "Client", lambda original=httpx2.Client, **given: original(**{**given, **options})
        )

    return change


follows = client_with(follow_redirects=True)


def through_proxy(scene: Scene) -> Found:
    """Attempt to lead the client through a proxy that the environment names."""
    with served(200, {}) as (proxy, seen), served(400, {}) as (url, _):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            scene.patch.setenv(name, proxy)
        scene.patch.setenv("no_proxy", "")
        said = asked(url, scene)
    return Found(bool(seen), str(seen) if seen else said)


proxied = client_with(trust_env=True)


def flooded(scene: Scene) -> Found:
    """Attempt to have an answer of 5 MiB read."""
    body = b'{"choices": [{"message": {"content": "' + b"x" * (5 << 20) + b'"}}]}'
    with served(200, {"Content-Type": "application/json"}, body) as (url, _):
        said = asked(url, scene)
    return Found(said.startswith("xxx"), said)


def unlimited(scene: Scene) -> None:
    """Read answers of every length."""
    scene.patch.setattr(chat_client, "MAX_BYTES", 1 << 40)


def opened(url: str) -> Callable[[Scene], object]:
    """Return work that prepares to ask `url`."""
    return lambda _: EndpointUser(url, model="m").url


def any_url(scene: Scene) -> None:
    """Take every URL."""
    for module in (http_json, user_endpoint):
        scene.patch.setattr(module, "check_url", lambda *_, **__: "http://host")  # pyright: ignore[reportUnknownLambdaType]


ATTACKS = [
    Attack(
        "A3",
        "a service on the loopback",
        inside(CONNECT.format(family="AF_INET", address="('127.0.0.1', TCP_PORT)")),
        SHARED_NETWORK,
    ),
    Attack(
        "A3",
        "a service on the loopback of IPv6",
        inside(CONNECT.format(family="AF_INET6", address="('::1', TCP6_PORT)")),
        SHARED_NETWORK,
    ),
    Attack(
        "A3",
        "a service by the address of no host",
        inside(CONNECT.format(family="AF_INET", address="('0', TCP_PORT)")),
        SHARED_NETWORK,
    ),
    Attack(
        "A3",
        "a service by an address of IPv4 in IPv6",
        inside(CONNECT.format(family="AF_INET6", address="('::ffff:127.0.0.1', TCP_PORT)")),
        SHARED_NETWORK,
    ),
    Attack(
        "A3",
        "an abstract socket",
        inside(CONNECT.format(family="AF_UNIX", address="'\\0ABSTRACT_NAME'")),
        SHARED_NETWORK,
    ),
    Attack(
        "A3",
        "a socket in a folder",
        inside(CONNECT.format(family="AF_UNIX", address="'UNIX_PATH'")),
        shown("--bind", "CANARY_FOLDER", "CANARY_FOLDER"),
    ),
    Attack(
        "A3",
        "the interfaces of the host",
        inside("return only([name for _, name in socket.if_nameindex() if name != 'lo'])"),
        SHARED_NETWORK,
    ),
    Attack(
        "A3",
        "the routes of the host",
        inside("return only(open('/proc/net/route').read().splitlines()[1:])"),
        SHARED_NETWORK,
    ),
    *(
        Attack("A3", f"a way to {name}", inside(routed(*route)), SHARED_NETWORK)
        for name, route in ROUTES.items()
    ),
    *(
        Attack("A3", f"a redirect with the key (status {status})", redirected(status), follows)
        for status in (301, 302, 303)
    ),
    Attack("A3", "a proxy from the environment", through_proxy, proxied),
    Attack("A3", "an answer without end", flooded, unlimited),
    *(
        Attack("A3", f"the URL {url}", refused(opened(url), by=UsageError), any_url)
        for url in ("file:///etc/passwd", "ftp://host/x", "gopher://host:70/x", "http://", "//host/x")
    ),
]
