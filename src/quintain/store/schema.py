"""The tables of ``run.db`` and their version.

Rows are added, never changed; what a resumed run supersedes is only marked. A new layout gets a new `VERSION`, the way
to it from the one before in `UPGRADES`, how it is read without that in `VIEWS`, and a saved run in
``tests/store/formats``; this release says so when it meets a newer one.
"""

from collections.abc import Sequence

VERSION = 5
APPLICATION = 0x51544E31
"""``QTN1``, in the header of the file"""

EPISODES = """
CREATE TABLE episodes (
    row INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    parent INTEGER,
    parent_turn INTEGER,
    phase TEXT NOT NULL,
    step INTEGER NOT NULL,
    group_id TEXT NOT NULL,
    place INTEGER NOT NULL,
    task TEXT NOT NULL,
    environment TEXT NOT NULL,
    split TEXT NOT NULL,
    value REAL,
    is_success INTEGER,
    failure TEXT,
    stop TEXT NOT NULL,
    num_turns INTEGER NOT NULL,
    num_sampled INTEGER NOT NULL,
    seconds REAL NOT NULL,
    policy TEXT,
    version INTEGER,
    is_abandoned INTEGER NOT NULL DEFAULT 0,
    codec INTEGER NOT NULL,
    digest BLOB NOT NULL,
    structure BLOB NOT NULL,
    payload BLOB NOT NULL
)
"""

ONE_OF_EACH = "CREATE UNIQUE INDEX one_of_each ON episodes (id) WHERE is_abandoned = 0"
OF_STEP = "step = :step AND id BETWEEN :first AND :last"
"""The condition for the episodes of a step: their ids begin with it, and are all that the index knows."""

USES = """
CREATE TABLE uses (
    step_row INTEGER NOT NULL,
    place INTEGER NOT NULL,
    episode INTEGER NOT NULL,
    signals BLOB,
    PRIMARY KEY (step_row, place)
) WITHOUT ROWID
"""

REJECTED = "ALTER TABLE uses ADD COLUMN rejected INTEGER"
"""What version 4 adds: the row of the episode that the one which was used was chosen over."""
COLLECTED = "ALTER TABLE steps ADD COLUMN is_collected INTEGER NOT NULL DEFAULT 0"
"""What version 5 adds: whether a step used what was collected for it, which then has no rows in ``uses``."""

TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    EPISODES,
    ONE_OF_EACH,
    USES,
    REJECTED,
    """CREATE TABLE steps (
    id INTEGER PRIMARY KEY,
    step INTEGER NOT NULL,
    phase TEXT NOT NULL,
    metrics TEXT NOT NULL,
    batch_hash TEXT NOT NULL,
    num_trajectories INTEGER NOT NULL,
    seconds REAL NOT NULL,
    is_abandoned INTEGER NOT NULL DEFAULT 0,
    weights TEXT,
    policy_version INTEGER,
    codec INTEGER NOT NULL
)""",
    COLLECTED,
    "CREATE UNIQUE INDEX one_commit ON steps (step, phase) WHERE is_abandoned = 0",
    """CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    kind TEXT NOT NULL,
    message TEXT NOT NULL,
    data TEXT NOT NULL
)""",
)

ROOT = (
    "id", "phase", "step", "group_id", "place", "task", "environment", "split", "value", "is_success", "failure",
    "stop", "num_turns", "num_sampled", "seconds", "policy", "version", "codec", "digest", "structure", "payload",
)  # fmt: skip
COLUMNS = (*ROOT, "parent", "parent_turn")
"""The columns of an episode that began with a reset, and of any"""
FACTS = (
    "row", "id", "parent", "parent_turn", "phase", "step", "group_id", "place", "task", "environment", "split", "value",
    "is_success", "failure", "stop", "num_turns", "num_sampled", "seconds", "policy", "version", "is_abandoned",
)  # fmt: skip
"""The columns that say of an episode what can be listed, without what was recorded of it"""


def insert_episode(columns: Sequence[str]) -> str:
    """Return the statement that adds an episode with values for `columns`, unless it is there."""
    marks = ", ".join("?" for _ in columns)
    return f"INSERT INTO episodes ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT DO NOTHING"


INSERT_ROOT, INSERT_BRANCH = insert_episode(ROOT), insert_episode(COLUMNS)

INSERT_STEP = """
INSERT INTO steps (
    step, phase, metrics, batch_hash, num_trajectories, seconds, weights, policy_version, codec, is_collected
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

INSERT_USE = "INSERT INTO uses (step_row, place, episode, signals, rejected) VALUES (?, ?, ?, ?, ?)"

_EPISODES_BEFORE = """
SELECT id AS row, episode_id(phase, step, group_id, place) AS id, NULL AS parent, NULL AS parent_turn, phase, step,
    group_id, place, task, environment, split, value, is_success, failure, stop, num_turns, num_sampled, seconds,
    NULL AS policy, NULL AS version, is_abandoned, codec, digest, structure, payload
FROM trajectories
"""

_USES_BEFORE = """
SELECT s.id AS step_row, row_number() OVER (PARTITION BY s.id ORDER BY t.group_id, t.place) - 1 AS place,
    t.id AS episode, NULL AS signals
FROM main.steps AS s JOIN trajectories AS t ON t.step = s.step AND t.phase = s.phase
WHERE s.is_abandoned = 0 AND t.is_abandoned = 0
"""

UPGRADES: dict[int, tuple[str, ...]] = {
    1: (
        "ALTER TABLE steps ADD COLUMN weights TEXT",
        "ALTER TABLE steps ADD COLUMN policy_version INTEGER",
        """UPDATE steps SET (weights, policy_version) = (
            SELECT message, json_extract(data, '$.version') FROM events
            WHERE kind = 'weights' AND json_extract(data, '$.step') = steps.step ORDER BY id DESC LIMIT 1
        )""",
    ),
    2: (
        EPISODES,
        f"INSERT INTO episodes {_EPISODES_BEFORE}",
        USES,
        f"INSERT INTO uses {_USES_BEFORE}",
        "ALTER TABLE steps ADD COLUMN codec INTEGER NOT NULL DEFAULT 1",
        "DROP TABLE trajectories",
        ONE_OF_EACH,
    ),
    3: (REJECTED,),
    4: (COLLECTED,),
}
"""Version → what makes it the next one.

A step named no weights in version 1; an event named those of checkpoints. In version 2 a step used the episodes that
were collected for it, in version 3 it did not say which were chosen over which; until version 4 it named all of them.
"""

_STEPS_OF_4 = "CREATE TEMP VIEW steps AS SELECT *, 0 AS is_collected FROM main.steps"
_VIEWS_BEFORE = (
    f"CREATE TEMP VIEW episodes AS {_EPISODES_BEFORE}",
    f"CREATE TEMP VIEW uses AS SELECT *, NULL AS rejected FROM ({_USES_BEFORE})",
)
VIEWS: dict[int, tuple[str, ...]] = {
    1: (
        *_VIEWS_BEFORE,
        "CREATE TEMP VIEW steps AS SELECT *, NULL AS weights, NULL AS policy_version, 1 AS codec, 0 AS is_collected "
        "FROM main.steps",
    ),
    2: (*_VIEWS_BEFORE, "CREATE TEMP VIEW steps AS SELECT *, 1 AS codec, 0 AS is_collected FROM main.steps"),
    3: ("CREATE TEMP VIEW uses AS SELECT *, NULL AS rejected FROM main.uses", _STEPS_OF_4),
    4: (_STEPS_OF_4,),
}
"""Version → what shows a file that is only read as the present one; a function ``episode_id`` names its episodes."""
