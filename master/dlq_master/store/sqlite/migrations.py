"""The only place where tables are made or changed.

Times are seconds on the master's steady axis: UTC at its start plus CLOCK_BOOTTIME, the same clock
as in the core. States are words.
"""

from dlq_master.store.sqlite.database import SchemaSteps

migrations = SchemaSteps("dlq")

TABLES: set[str] = set()  # that the migrations make


def _migration(name: str, *statements: str) -> None:
    migrations.add(name, *statements)
    made = (statement for statement in statements if statement.startswith("CREATE TABLE "))
    TABLES.update(statement.split()[2] for statement in made)


# The first schema. `body` holds the whole value as JSON with its version `v`.
_migration(
    "0001_first_tables",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE jobs (
        job_id INTEGER PRIMARY KEY, user TEXT NOT NULL, name TEXT NOT NULL, queue TEXT NOT NULL,
        state TEXT NOT NULL, version INTEGER NOT NULL, submit_time_s REAL NOT NULL,
        end_time_s REAL, body TEXT NOT NULL) STRICT""",
    """CREATE TABLE job_specs (
        job_id INTEGER PRIMARY KEY REFERENCES jobs(job_id), spec BLOB NOT NULL) STRICT""",
    """CREATE TABLE attempts (
        job_id INTEGER NOT NULL REFERENCES jobs(job_id), number INTEGER NOT NULL,
        epoch INTEGER NOT NULL, state TEXT NOT NULL, ended_time_s REAL, body TEXT NOT NULL,
        PRIMARY KEY (job_id, number)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX attempts_living ON attempts (job_id) WHERE ended_time_s IS NULL",
    "CREATE TABLE nodes (node_id TEXT PRIMARY KEY, state TEXT NOT NULL, body TEXT NOT NULL) STRICT",
    "CREATE TABLE users (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT",
    "CREATE TABLE tokens (token_id TEXT PRIMARY KEY, expire_time_s REAL NOT NULL, body TEXT NOT "
    "NULL) STRICT",
    """CREATE TABLE requests (
        user TEXT NOT NULL, request_id TEXT NOT NULL, digest TEXT NOT NULL, result TEXT NOT NULL,
        time_s REAL NOT NULL, PRIMARY KEY (user, request_id)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX requests_by_time ON requests (time_s)",
    """CREATE TABLE journal (
        sequence INTEGER PRIMARY KEY, time_s REAL NOT NULL, kind TEXT NOT NULL, job_id INTEGER,
        attempt INTEGER, node_id TEXT, cause TEXT NOT NULL, actor TEXT NOT NULL,
        data TEXT NOT NULL) STRICT""",
    "CREATE INDEX journal_by_job ON journal (job_id, sequence) WHERE job_id IS NOT NULL",
    """CREATE TABLE outbox (
        sequence INTEGER PRIMARY KEY, node_id TEXT NOT NULL, kind TEXT NOT NULL, job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL, body TEXT NOT NULL) STRICT""",  # noqa: E501
)
# Living jobs are found without looking at those that have ended, and these by end and owner.
_migration(
    "0002_ended_jobs",
    "CREATE INDEX jobs_living ON jobs (job_id) WHERE end_time_s IS NULL",
    "CREATE INDEX jobs_by_end ON jobs (end_time_s) WHERE end_time_s IS NOT NULL",
    "CREATE INDEX jobs_ended_of_user ON jobs (user, job_id) WHERE end_time_s IS NOT NULL",
)
# Starts whose traffic is recorded, and what each of their nodes told.
_migration(
    "0003_traffic",
    """CREATE TABLE recordings (
        job_id INTEGER NOT NULL REFERENCES jobs(job_id), number INTEGER NOT NULL,
        order_time_s REAL NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (job_id, number)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX recordings_by_time ON recordings (order_time_s)",
    """CREATE TABLE evidence (
        job_id INTEGER NOT NULL REFERENCES jobs(job_id), number INTEGER NOT NULL,
        node_rank INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (job_id, number, node_rank)) STRICT""",
)
# Teams, reservations of nodes, and how long jobs that live have waited for what.
_migration(
    "0004_tenants",
    "CREATE TABLE teams (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT",
    "CREATE TABLE reservations (reservation_id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT",
    "CREATE TABLE waited (job_id INTEGER PRIMARY KEY REFERENCES jobs(job_id), body TEXT NOT NULL) "
    "STRICT",
)
# First ranges of starts: of jobs that wait, and of the newest that have started.
_migration(
    "0005_foreseen",
    "CREATE TABLE foreseen (job_id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT",
)
# GPU-seconds of each day (of UTC, since 1970-01-01): of whom and for what, and of each pool.
_migration(
    "0006_usage",
    """CREATE TABLE usage_days (
        day INTEGER NOT NULL, user TEXT NOT NULL, team TEXT NOT NULL, class TEXT NOT NULL, pool TEXT NOT NULL,
        useful_gpu_s REAL NOT NULL, preempted_gpu_s REAL NOT NULL, failed_gpu_s REAL NOT NULL,
        transit_gpu_s REAL NOT NULL,
        PRIMARY KEY (day, user, team, class, pool)) STRICT, WITHOUT ROWID""",  # noqa: E501
    """CREATE TABLE pool_days (
        day INTEGER NOT NULL, pool TEXT NOT NULL, used_gpu_s REAL NOT NULL, idle_gpu_s REAL NOT NULL,
        withheld_gpu_s REAL NOT NULL, PRIMARY KEY (day, pool)) STRICT, WITHOUT ROWID""",  # noqa: E501
)
# Machines that are, or were, rented from providers.
_migration(
    "0007_machines",
    """CREATE TABLE machines (
        request_id TEXT PRIMARY KEY, pool TEXT NOT NULL, asked_s REAL NOT NULL, end_s REAL,
        body TEXT NOT NULL) STRICT""",
    "CREATE INDEX machines_open ON machines (request_id) WHERE end_s IS NULL",
    "CREATE INDEX machines_by_end ON machines (end_s) WHERE end_s IS NOT NULL",
)
# The part of each machine that each attempt had, and when; until_s NULL: it still has it.
_migration(
    "0008_stays",
    """CREATE TABLE stays (
        request_id TEXT NOT NULL, job_id INTEGER NOT NULL, attempt INTEGER NOT NULL, part REAL NOT NULL,
        from_s REAL NOT NULL, until_s REAL,
        PRIMARY KEY (request_id, job_id, attempt)) STRICT, WITHOUT ROWID""",  # noqa: E501
    "CREATE INDEX stays_here ON stays (request_id) WHERE until_s IS NULL",
    "CREATE INDEX stays_by_end ON stays (until_s) WHERE until_s IS NOT NULL",
)
# Lines of the audit, stored with the changes that they tell of until the audit's file has them.
_migration(
    "0009_audit_owed",
    """CREATE TABLE audit_owed (
        sequence INTEGER PRIMARY KEY, note_id TEXT NOT NULL UNIQUE, line TEXT NOT NULL) STRICT""",
)
# A request id belongs to one person. It answers nobody else of the same name, before or after.
# From here on they are kept under a person (model/jobs/person.py); the first one of a name keeps
# its own.
_migration(
    "0010_requests_of_persons",
    """DELETE FROM requests WHERE time_s < (SELECT json_extract(users.body, '$.created_time_s')
        FROM users WHERE users.name = requests.user)""",
)
# Steps of attempts, as their nodes told them last: one row for each attempt, packed.
_migration(
    "0011_steps",
    """CREATE TABLE steps (
        job_id INTEGER NOT NULL, number INTEGER NOT NULL, told_s REAL NOT NULL,
        content BLOB NOT NULL, PRIMARY KEY (job_id, number)) STRICT""",
)
# Specs that were changed after the submission, by their jobs.
_migration(
    "0012_changed_specs",
    """CREATE TABLE changed_specs (
        job_id INTEGER PRIMARY KEY REFERENCES jobs(job_id), spec BLOB NOT NULL) STRICT""",
)
# Lessons of jobs: run times, errors of estimates, services, demand.
_migration(
    "0013_lessons",
    "CREATE TABLE lessons (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT",
)
# By how much GPU-seconds x speed differ from those of `usage_days`; no row: by nothing. They have a
# table of their own, so that a former release goes on writing the other one.
_migration(
    "0014_speed_days",
    """CREATE TABLE speed_days (
        day INTEGER NOT NULL, user TEXT NOT NULL, team TEXT NOT NULL, class TEXT NOT NULL, pool TEXT NOT NULL,
        beyond_gpu_s REAL NOT NULL,
        PRIMARY KEY (day, user, team, class, pool)) STRICT, WITHOUT ROWID""",  # noqa: E501
)
# Rules of notifications; their bodies hold secrets of users.
_migration(
    "0015_notify_rules",
    "CREATE TABLE notify_rules (rule_id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT",
)
_migration(
    "0016_revocations",
    "CREATE TABLE revocations (subject TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT",
)
# Words over ended jobs are looked for in the index alone. It has its former name, by which a former
# release asks for it. Ends rise, so its entries are still written one behind the other.
_migration(
    "0017_words_of_ended_jobs",
    "DROP INDEX jobs_by_end",
    "CREATE INDEX jobs_by_end ON jobs (end_time_s, user, name) WHERE end_time_s IS NOT NULL",
)
# GPU-seconds of `usage_days` in which nothing ran on the GPU, by its samples; no row: none.
_migration(
    "0018_idle_days",
    """CREATE TABLE idle_days (
        day INTEGER NOT NULL, user TEXT NOT NULL, team TEXT NOT NULL, class TEXT NOT NULL, pool TEXT NOT NULL,
        idle_gpu_s REAL NOT NULL,
        PRIMARY KEY (day, user, team, class, pool)) STRICT, WITHOUT ROWID""",  # noqa: E501
)
# Grants between organisations: given ones, and held ones.
_migration(
    "0019_grants",
    "CREATE TABLE grants (serial TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT",
    "CREATE TABLE held_grants (serial TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT",
)
