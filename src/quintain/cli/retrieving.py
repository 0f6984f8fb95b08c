"""``quintain retrieve CORPUS``: a corpus that is searched over HTTP, by words or by a trained embedder.

A corpus is a folder of texts, a file (JSON lines, or Debian's descriptions of packages), or an environment that has
one, such as ``hopqa?facts=50000``. With ``--query`` one search is shown instead.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from quintain.cli.arguments import Parser, whole_number
from quintain.types.terminal import write_line

RETRIEVAL_PORT = 8200


def retrieve(argv: Sequence[str]) -> int:
    """Serve a corpus until interrupted, or show one search."""
    parser = Parser("retrieve", "Search a corpus: over HTTP for environments and agents, or once.")
    parser.add_argument("corpus", metavar="CORPUS", help="folder, file, or environment: hopqa?facts=50000")
    parser.flag(
        "--kind",
        "bm25 (default), by words; dense, by an embedder that is trained on it; or hnsw, the same for millions",
        "KIND",
        "bm25",
    )
    parser.flag("--embedder", "file of the embedder: read if it is there, else trained and written", "FILE")
    parser.flag("--query", "show what this finds, and end", "TEXT")
    parser.flag("--top", "passages that --query shows (default 3)", "N", "3")
    parser.flag("--record", "SQLite file that keeps all answers, and gives them again", "FILE")
    parser.flag(
        "--host", "address to listen at (default 127.0.0.1); others need --token-file", "HOST", "127.0.0.1"
    )
    parser.flag(
        "--port", f"port to listen at (default {RETRIEVAL_PORT}; 0: any)", "PORT", str(RETRIEVAL_PORT)
    )
    parser.flag(
        "--token-file", "a file whose first word every request must carry as a bearer token", "FILE", ""
    )
    parser.flag("--allow-host", "further names by which clients reach this machine, with commas", "HOSTS", "")
    arguments = parser.read(argv)
    port, top = whole_number(arguments.port, "--port"), whole_number(arguments.top, "--top", least=1)

    from quintain.environments.boundary import call_within
    from quintain.environments.catalog import CATALOG, find
    from quintain.errors import UsageError
    from quintain.processes.http_json import key_in
    from quintain.retrieval.passages import HasPassages, read_passages
    from quintain.retrieval.retriever import Indexed, Recorded, Retriever

    if arguments.embedder is not None and arguments.kind == "bm25":
        raise UsageError(
            f"--embedder: got {arguments.embedder!r} with --kind {arguments.kind}; give --kind dense"
        )
    name = str(arguments.corpus)
    if name.partition("?")[0] in CATALOG and not Path(name).exists():
        spec = find(name)
        with closing(call_within(name, spec)) as world:
            if not isinstance(world, HasPassages):
                raise UsageError(
                    f"corpus: got the environment {name!r}, which has no texts; try hopqa?facts=50000"
                )
            passages = tuple(world.passages())
    else:
        passages = read_passages(name)
    model = None if arguments.embedder is None else Path(arguments.embedder)
    retriever: Retriever = Indexed(passages, arguments.kind, model=model)
    if arguments.record is not None:
        retriever = Recorded(retriever, arguments.record)
    if arguments.query is not None:
        for found in retriever.search(arguments.query, top):
            write_line(f"{found.score:8.3f}  {found.passage.title}: {found.passage.text}")
        return 0

    from quintain.environments.extras import extra_module

    for package in ("starlette", "uvicorn"):
        extra_module(package, package=package, extra="serve", feature="quintain retrieve")
    from quintain.serve.listener import Listener
    from quintain.serve.retrieval import retrieval_app

    token = key_in(arguments.token_file)
    listener = Listener(
        retrieval_app(retriever), host=arguments.host, port=port, token=token, also=arguments.allow_host
    ).start()
    told = ", a token is needed" if token else ""
    write_line(f"{len(passages)} passages of {name} at {listener.url}{told}; Ctrl-C stops it")
    try:
        listener.run_until_closed()
    finally:
        listener.close()
    return 0
