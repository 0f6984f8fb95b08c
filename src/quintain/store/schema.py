"""The tables of ``run.db`` and their version.

The one rule: rows are added, never changed; what a resumed run supersedes is only marked. A new layout gets a
new `VERSION`, the way to it from the one before in `UPGRADES`, and a saved run in ``tests/store/formats``; this
release says so when it meets a newer one.
"""

VERSION = 2
APPLICATION = 0x51544E31
"""``QTN1``, in the header of the file"""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE trajectories (
    id INTEGER PRIMARY KEY,
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
    codec INTEGER NOT NULL,
    digest BLOB NOT NULL,
    structure BLOB NOT NULL,
    payload BLOB NOT NULL,
    is_abandoned INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX one_of_each ON trajectories (step, phase, group_id, place) WHERE is_abandoned = 0;

CREATE TABLE steps (
    id INTEGER PRIMARY KEY,
    step INTEGER NOT NULL,
    phase TEXT NOT NULL,
    metrics TEXT NOT NULL,
    batch_hash TEXT NOT NULL,
    num_trajectories INTEGER NOT NULL,
    seconds REAL NOT NULL,
    is_abandoned INTEGER NOT NULL DEFAULT 0,
    weights TEXT,
    policy_version INTEGER
);
CREATE UNIQUE INDEX one_commit ON steps (step, phase) WHERE is_abandoned = 0;

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    kind TEXT NOT NULL,
    message TEXT NOT NULL,
    data TEXT NOT NULL
);
"""

INSERT_TRAJECTORY = """
INSERT INTO trajectories (phase, step, group_id, place, task, environment, split, value, is_success, failure,
    stop, num_turns, num_sampled, seconds, codec, digest, structure, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""

INSERT_STEP = """
INSERT INTO steps (step, phase, metrics, batch_hash, num_trajectories, seconds, weights, policy_version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
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
}
"""Version → what makes it the next one. A step named no weights in version 1; an event named those of checkpoints."""
