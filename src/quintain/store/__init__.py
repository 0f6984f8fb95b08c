"""The run folder: an append-only journal, verified checkpoints, one writer.

``runs/NAME/`` holds ``run.db`` (the journal, which is the truth), ``metrics.jsonl`` (a view of it), ``config.json``
(the effective recipe) and ``checkpoints/``. Whatever kills the process, the folder opens to the last state that was
promised, never to a mixture.
"""

from quintain.store.checkpoints import Checkpoint
from quintain.store.listing import RunInfo, runs_in
from quintain.store.names import run_folder
from quintain.store.run import Run

__all__ = ["Checkpoint", "Run", "RunInfo", "run_folder", "runs_in"]
