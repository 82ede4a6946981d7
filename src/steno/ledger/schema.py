"""The tables of the ledger, as numbered migrations in SQL that SQLite and PostgreSQL accept.

Times are milliseconds since 1970 (UTC), money is integer nano-dollars, unknown figures are NULL.
The `id` of rows in `requests`, `calls`, `changes`, `denials` and `texts` is a hash of what they
stand for, so that the same thing in two files is one row; `seq` is the order of insertion, which
keeps new rows together on disk. `spend` and `tool_use` are sums, updated in the transaction that
changes what they sum.

A released migration is never changed: add a new one at the end, and count it in SCHEMA_VERSION of
`store`, which loads this module for a ledger that needs a migration only.
"""

from . import sum_tables

# The stores replace words in <>, where the two databases differ. A statement that begins with
# <postgresql> or <sqlite> is for that database only; <;> is a semicolon inside a statement.
INITIAL_SCHEMA = """
CREATE TABLE sources (
    path        TEXT PRIMARY KEY,       -- an imported file, or a recording's folder
    kind        TEXT NOT NULL,          -- transcript, tape or recording
    size        <int> NOT NULL,         -- at the last import
    mtime_ns    <int> NOT NULL,
    inode       <int> NOT NULL,
    done        <int> NOT NULL,         -- bytes imported; the next import continues here
    lines       <int> NOT NULL,         -- lines in those bytes
    head        TEXT NOT NULL,          -- hash of its first bytes, to detect another file
    tail        TEXT NOT NULL,          -- hash of the bytes before `done`, to detect changes
    state       <blob>,                 -- state of the reader at `done`
    session     TEXT,
    run         TEXT,
    imported_at <int> NOT NULL
);
CREATE TABLE glances (                  -- transcripts of which only requests were read
    path        TEXT PRIMARY KEY,
    kind        TEXT NOT NULL,
    size        <int> NOT NULL,
    mtime_ns    <int> NOT NULL,
    inode       <int> NOT NULL,
    done        <int> NOT NULL,
    lines       <int> NOT NULL,
    head        TEXT NOT NULL,
    tail        TEXT NOT NULL,
    state       <blob>
);
CREATE TABLE sessions (
    id             TEXT PRIMARY KEY,
    agent          TEXT NOT NULL,
    agent_version  TEXT,
    project        TEXT,                -- the agent's working folder
    model          TEXT,                -- of the main thread's last request
    title          TEXT,                -- start of the first prompt
    first_at       <int>,
    last_at        <int>,
    prompts        <int> NOT NULL,      -- number of user prompts
    turns          <int>,               -- reported by its runs
    context_used   <int>,               -- of the main thread's last request
    context_limit  <int>,
    context_peak   <int>,
    compactions    <int> NOT NULL,
    reported_nano  <int>,               -- the agent's own total of the session
    stop           TEXT                 -- last stop of the main thread: end_turn, error ...
);
CREATE TABLE tasks (
    id          TEXT PRIMARY KEY,
    agent       TEXT,
    project     TEXT,
    prompt      TEXT,
    started_at  <int>,
    ended_at    <int>,
    verdict     TEXT,                   -- NULL while active
    attempts    <int> NOT NULL
);
CREATE TABLE runs (
    id             TEXT PRIMARY KEY,
    session        TEXT,
    task           TEXT,
    attempt        <int>,
    why            TEXT,                -- decision after the run
    agent          TEXT,
    agent_version  TEXT,
    model          TEXT,
    project        TEXT,
    source         TEXT,                -- its recording
    started_at     <int>,
    ended_at       <int>,
    duration_ms    <int>,
    verdict        TEXT,                -- NULL while active
    ok             <int> NOT NULL,
    succeeded      <int> NOT NULL,
    complete       <int> NOT NULL,
    error          TEXT,
    error_category TEXT,
    exit_code      <int>,
    signal         <int>,
    turns          <int>,
    requests       <int>,
    input          <int>,
    cache_write    <int>,
    cache_read     <int>,
    output         <int>,
    reasoning      <int>,
    cost_nano      <int>,               -- of this run alone
    cost_source    TEXT NOT NULL,       -- reported, computed, local (free model server), unknown
    session_nano   <int>,
    context_used   <int>,
    context_limit  <int>,
    context_peak   <int>,
    tools          <int> NOT NULL,
    tool_errors    <int> NOT NULL,
    files          <int> NOT NULL,
    denials        <int> NOT NULL,
    unknown        <int> NOT NULL,      -- events of unknown kinds
    prompt         TEXT,
    pid            <int>,               -- of the agent, while active
    report         <blob>               -- the report: JSON, compressed with zlib
);
CREATE INDEX runs_started ON runs (started_at);
CREATE INDEX runs_session ON runs (session);
CREATE INDEX runs_task ON runs (task);
CREATE TABLE requests (
    seq             <serial>,
    id             <int> NOT NULL UNIQUE,
    agent          TEXT NOT NULL,
    session        TEXT NOT NULL,
    run            TEXT,
    kind           TEXT NOT NULL,       -- request, or rest: difference to the run's total
    message        TEXT,
    parent         TEXT,                -- call that started the subagent; NULL: main thread
    model          TEXT NOT NULL,
    at             <int> NOT NULL,
    input          <int> NOT NULL,
    cache_write    <int> NOT NULL,
    cache_read     <int> NOT NULL,
    output         <int> NOT NULL,
    reasoning      <int> NOT NULL,
    cache_write_1h <int> NOT NULL,      -- part of cache_write cached for an hour
    cost_nano      <int>,               -- NULL: price unknown
    saved_nano     <int> NOT NULL,      -- saved by reading from the cache
    source         TEXT NOT NULL        -- of the cost: reported (run total), computed, unknown
);
CREATE INDEX requests_session ON requests (session, at);
CREATE INDEX requests_run ON requests (run) WHERE run IS NOT NULL;
CREATE TABLE calls (
    seq          <serial>,
    id          <int> NOT NULL UNIQUE,
    call        TEXT NOT NULL,          -- the agent's id of the call
    agent       TEXT NOT NULL,
    session     TEXT NOT NULL,
    run         TEXT,
    request     <int> NOT NULL,         -- the request that made it
    parent      TEXT,
    name        TEXT NOT NULL,
    kind        TEXT NOT NULL,
    target      TEXT,                   -- a path, a command, a pattern
    at          <int> NOT NULL,
    duration_ms <int>,
    ok          <int>,                  -- NULL: no result
    denied      <int> NOT NULL,
    error       TEXT
);
CREATE INDEX calls_run ON calls (run) WHERE run IS NOT NULL;
CREATE TABLE changes (
    seq       <serial>,
    id       <int> NOT NULL UNIQUE,
    session  TEXT NOT NULL,
    run      TEXT,
    call     TEXT,
    path     TEXT NOT NULL,             -- relative to the project if inside it
    inside   <int> NOT NULL,
    change   TEXT NOT NULL,             -- created, modified or deleted
    source   TEXT NOT NULL,             -- tool, filesystem or git
    at       <int> NOT NULL
);
CREATE INDEX changes_session ON changes (session);
CREATE INDEX changes_run ON changes (run) WHERE run IS NOT NULL;
CREATE TABLE denials (
    seq       <serial>,
    id       <int> NOT NULL UNIQUE,
    session  TEXT NOT NULL,
    run      TEXT,
    call     TEXT,
    tool     TEXT,
    reason   TEXT,
    rule     TEXT,                      -- rule that would allow it
    at       <int> NOT NULL
);
CREATE INDEX denials_session ON denials (session);
CREATE INDEX denials_run ON denials (run) WHERE run IS NOT NULL;
CREATE TABLE texts (
    seq       <serial>,
    id       <int> NOT NULL UNIQUE,
    session  TEXT NOT NULL,
    run      TEXT,
    parent   TEXT,
    role     TEXT NOT NULL,             -- prompt, answer or command
    at       <int> NOT NULL,
    text     TEXT NOT NULL
);
CREATE TABLE pruned (                   -- ids of deleted rows, so that no import adds them
    id <int> PRIMARY KEY                -- of a request, call, session or run
);
CREATE TABLE spend (
    session         TEXT NOT NULL,
    model           TEXT NOT NULL,
    hour            <int> NOT NULL,     -- hours since 1970 (UTC)
    agent           TEXT NOT NULL,
    project         TEXT NOT NULL,      -- empty: unknown
    requests        <int> NOT NULL,
    input           <int> NOT NULL,
    cache_write     <int> NOT NULL,
    cache_read      <int> NOT NULL,
    output          <int> NOT NULL,
    reasoning       <int> NOT NULL,
    cache_write_1h  <int> NOT NULL,
    reported_nano   <int> NOT NULL,
    computed_nano   <int> NOT NULL,
    saved_nano      <int> NOT NULL,
    unpriced        <int> NOT NULL,     -- requests without a price
    unpriced_tokens <int> NOT NULL,
    PRIMARY KEY (hour, session, model)
) <by key>;
CREATE TABLE tool_use (
    hour       <int> NOT NULL,
    agent      TEXT NOT NULL,
    project    TEXT NOT NULL,
    name       TEXT NOT NULL,
    calls      <int> NOT NULL,
    errors     <int> NOT NULL,          -- results with an error, without denials
    denied     <int> NOT NULL,
    open       <int> NOT NULL,          -- calls without a result
    timed      <int> NOT NULL,          -- calls whose duration is known
    total_ms   <int> NOT NULL,          -- of those
    slowest_ms <int> NOT NULL,
    PRIMARY KEY (hour, agent, project, name)
) <by key>;
CREATE INDEX tool_use_name ON tool_use
    (name, calls, errors, denied, open, timed, total_ms, slowest_ms);
CREATE INDEX spend_session ON spend (session);
"""

NOTES_AND_BUDGETS = """
CREATE TABLE notes (
    id       <serial>,
    run      TEXT,
    session  TEXT,
    at       <int> NOT NULL,
    text     TEXT NOT NULL
);
CREATE TABLE budgets (
    period     TEXT NOT NULL,           -- day, week or month
    project    TEXT NOT NULL,           -- empty: all projects
    limit_nano <int> NOT NULL,
    set_at     <int> NOT NULL,
    PRIMARY KEY (period, project)
);
"""

# Runs known from their result only: the requests and the context that it stands for.
RUNS_WITHOUT_REQUESTS = """
ALTER TABLE requests ADD COLUMN requests <int> NOT NULL DEFAULT 1;  -- rest: those not listed
UPDATE requests SET requests = 0 WHERE kind = 'rest';
ALTER TABLE sessions ADD COLUMN context_source TEXT;  -- upper_bound; NULL: measured
"""

LABELS_AND_ORIGIN = """
ALTER TABLE runs ADD COLUMN name TEXT;          -- given by the user
ALTER TABLE runs ADD COLUMN tags TEXT;          -- JSON object with sorted names; NULL: none
ALTER TABLE runs ADD COLUMN host TEXT;
ALTER TABLE runs ADD COLUMN user_name TEXT;
ALTER TABLE runs ADD COLUMN repository TEXT;
ALTER TABLE runs ADD COLUMN branch TEXT;
ALTER TABLE runs ADD COLUMN commit_id TEXT;     -- checked out at its start
ALTER TABLE runs ADD COLUMN pull_request TEXT;  -- number, in CI
ALTER TABLE sessions ADD COLUMN host TEXT;
ALTER TABLE sessions ADD COLUMN user_name TEXT;
ALTER TABLE sessions ADD COLUMN repository TEXT;
ALTER TABLE sessions ADD COLUMN branch TEXT;
"""

CONTEXT_OVERHEAD = """
ALTER TABLE sessions ADD COLUMN overhead TEXT;  -- JSON: what fills the context before any prompt
"""

# Lists, sums and lookups that read no more rows than they need, however large the ledger is.
INDEXES = """
CREATE INDEX runs_newest ON runs (started_at <descending>, id);
CREATE INDEX runs_failed ON runs (started_at, task, cost_nano, project, model, agent)
    WHERE verdict <> 'success';
CREATE INDEX runs_without_usage ON runs (started_at)
    WHERE output IS NULL AND verdict IS NOT NULL;
CREATE INDEX runs_sums ON runs (started_at, cost_nano, input, cache_write, cache_read, output,
    reasoning, turns, duration_ms);
DROP INDEX runs_started;
CREATE INDEX sessions_newest ON sessions (last_at <descending>, id);
CREATE INDEX sessions_peak ON sessions (context_peak <descending>, id)
    WHERE context_peak IS NOT NULL;
CREATE INDEX tasks_retried ON tasks (id) WHERE verdict = 'success' AND attempts > 1;
CREATE INDEX calls_session ON calls (session);
CREATE INDEX texts_session ON texts (session);
CREATE INDEX sources_inode ON sources (inode) WHERE kind = 'transcript';
CREATE INDEX glances_inode ON glances (inode) WHERE kind = 'transcript';
<postgresql> CREATE INDEX runs_id ON runs (id COLLATE "C");
<postgresql> CREATE INDEX runs_session_id ON runs (session COLLATE "C");
<postgresql> CREATE INDEX sessions_id ON sessions (id COLLATE "C");
"""

# The newest of a project, host, branch and so on, and the names that there are.
INDEXES_BY_NAME = """
CREATE INDEX runs_project ON runs (project, started_at <descending>, id);
CREATE INDEX runs_model ON runs (model, started_at <descending>, id);
CREATE INDEX runs_agent ON runs (agent, started_at <descending>, id);
CREATE INDEX runs_verdict ON runs (verdict, started_at <descending>, id);
CREATE INDEX runs_host ON runs (host, started_at <descending>, id) WHERE host IS NOT NULL;
CREATE INDEX runs_user ON runs (user_name, started_at <descending>, id)
    WHERE user_name IS NOT NULL;
CREATE INDEX runs_repository ON runs (repository, started_at <descending>, id)
    WHERE repository IS NOT NULL;
CREATE INDEX runs_branch ON runs (branch, started_at <descending>, id) WHERE branch IS NOT NULL;
CREATE INDEX runs_tags ON runs (started_at <descending>, id, session, tags)
    WHERE tags IS NOT NULL;
DROP INDEX runs_sums;
CREATE INDEX sessions_project ON sessions (project, last_at <descending>, id);
CREATE INDEX sessions_model ON sessions (model, last_at <descending>, id);
CREATE INDEX sessions_agent ON sessions (agent, last_at <descending>, id);
CREATE INDEX sessions_host ON sessions (host, last_at <descending>, id) WHERE host IS NOT NULL;
CREATE INDEX sessions_user ON sessions (user_name, last_at <descending>, id)
    WHERE user_name IS NOT NULL;
CREATE INDEX sessions_repository ON sessions (repository, last_at <descending>, id)
    WHERE repository IS NOT NULL;
CREATE INDEX sessions_branch ON sessions (branch, last_at <descending>, id)
    WHERE branch IS NOT NULL;
CREATE INDEX session_spend_cost ON session_spend (cost_nano DESC, requests DESC, session);
CREATE INDEX session_spend_tokens ON session_spend (tokens DESC, session);
DROP INDEX tool_use_name;
CREATE INDEX tool_use_slowest ON tool_use (name, slowest_ms DESC, agent, project, timed);
"""

LIMITS = """
CREATE TABLE limits (
    agent        TEXT NOT NULL,
    account      TEXT NOT NULL,         -- label; empty: unknown
    window_kind  TEXT NOT NULL,         -- five_hour, seven_day, or the agent's name
    observed_at  <int> NOT NULL,        -- time of the observation
    utilization  DOUBLE PRECISION,      -- used part, 1 if it is used up; NULL: unknown
    resets_at    <int>,                 -- end of the window
    status       TEXT,                  -- of the agent: allowed, allowed_warning, rejected
    source       TEXT NOT NULL,         -- statusline, event (of the agent) or error (of a run)
    PRIMARY KEY (agent, account, window_kind, observed_at)
) <by key>;
CREATE INDEX limits_time ON limits (observed_at);
"""

# PostgreSQL treats a path, host or e-mail address as one word; without these, each part is one.
WORD_SEPARATORS = "/.@:_+-"
# The words of texts, the newest texts, and the runs of a session by time.
SEARCH = f"""
CREATE INDEX sources_session ON sources (session) WHERE kind = 'transcript';
CREATE INDEX texts_newest ON texts (at <descending>, id);
DROP INDEX runs_session;
CREATE INDEX runs_session ON runs (session, started_at);
<postgresql> DROP INDEX IF EXISTS texts_parts;
<postgresql> ALTER TABLE texts ADD COLUMN words tsvector GENERATED ALWAYS AS (
    to_tsvector('simple', translate(text, '{WORD_SEPARATORS}', '{" " * len(WORD_SEPARATORS)}'))
) STORED;
<postgresql> CREATE INDEX texts_words ON texts USING gin (words);
"""

# Agents side by side. No recording has any of this: a rebuild keeps it.
TEAM = """
CREATE TABLE messages (
    id         <serial>,
    sender     TEXT NOT NULL,           -- a task, or @user for a person
    run        TEXT,                    -- of the sender
    recipient  TEXT NOT NULL,           -- a task, run, session, name or @user; empty: all
    at         <int> NOT NULL,
    text       TEXT NOT NULL
);
CREATE INDEX messages_recipient ON messages (recipient, at);
CREATE INDEX messages_sender ON messages (sender, at);
CREATE TABLE message_reads (
    message    <int> NOT NULL,          -- id in `messages`
    reader     TEXT NOT NULL,           -- a task, or @user for a person
    at         <int> NOT NULL,
    PRIMARY KEY (message, reader)
) <by key>;
CREATE TABLE claims (
    id         <serial>,                -- the order in which they were asked for
    repository TEXT NOT NULL,           -- its remote, or its folder on one machine
    path       TEXT NOT NULL,           -- relative to its root; empty: all of it
    owner      TEXT NOT NULL,           -- a task, or @user for a person
    run        TEXT,                    -- of the owner; NULL: a person
    registry   TEXT NOT NULL,           -- that knows the run: machine and data directory
    asked_at   <int> NOT NULL,          -- time of the first request for it
    ttl_ms     <int> NOT NULL,          -- longest time to hold it
    held_since <int>,                   -- NULL: waiting
    expires_at <int> NOT NULL,          -- end of the claim, or of the place in line
    UNIQUE (repository, path, owner)
);
CREATE TABLE permission_requests (
    id         TEXT PRIMARY KEY,
    run        TEXT,
    task       TEXT,
    session    TEXT,
    name       TEXT,                    -- of the run
    registry   TEXT NOT NULL,           -- that knows the run: machine and data directory
    tool       TEXT NOT NULL,
    input      TEXT NOT NULL,           -- JSON without secrets, truncated
    chars      <int> NOT NULL,          -- length of the whole input
    asked_at   <int> NOT NULL,          -- time of the request
    expires_at <int> NOT NULL,          -- denied if there is no decision by then
    decision   TEXT,                    -- allow or deny; NULL: none yet
    reason     TEXT,                    -- of a denial, for the agent
    decided_at <int>,                   -- time of the decision
    decided_by TEXT                     -- @user, page or timeout
);
CREATE INDEX permission_requests_open ON permission_requests (expires_at) WHERE decision IS NULL;
CREATE TABLE presence (                 -- of runs whose agent uses `steno mcp`
    run           TEXT PRIMARY KEY,
    state         TEXT NOT NULL,        -- thinking, running, asking, waiting ...
    tool          TEXT,                 -- running tool
    silence_ms    <int>,                -- time since the last output
    context_used  <int>,
    context_limit <int>,
    seen_at       <int> NOT NULL        -- time of this state
);
CREATE INDEX runs_active ON runs (started_at) WHERE verdict IS NULL;
"""

# The calls of an hour that the start or end of a range cuts: `tool_use` has only whole hours.
CALLS_BY_TIME = """
CREATE INDEX calls_time ON calls (at);
"""

WINDOW_SOURCE = """
ALTER TABLE sessions ADD COLUMN context_limit_source TEXT;  -- reported; NULL: known by the model
"""

# Which run shows a request, running totals of sessions, and what forks copied.
JOIN = f"""
ALTER TABLE requests ADD COLUMN shown TEXT;                    -- run whose output shows it
ALTER TABLE requests ADD COLUMN final <int> NOT NULL DEFAULT 1;    -- its output is complete
ALTER TABLE requests ADD COLUMN partial <int> NOT NULL DEFAULT 0;  -- 1: figures: a lower bound
UPDATE requests SET shown = run WHERE run IS NOT NULL AND kind = 'request';
ALTER TABLE runs ADD COLUMN identity TEXT;     -- equal for two recordings of one process
ALTER TABLE runs ADD COLUMN first_request <int>;   -- the same, of incomplete recordings
ALTER TABLE runs ADD COLUMN derived <int> NOT NULL DEFAULT 0;       -- 1: its file has no run id
ALTER TABLE runs ADD COLUMN over_session <int> NOT NULL DEFAULT 0;  -- 1: totals of the session
ALTER TABLE sessions ADD COLUMN untimed <int> NOT NULL DEFAULT 0;  -- 1: times of files only
ALTER TABLE spend ADD COLUMN partial <int> NOT NULL DEFAULT 0;     -- rows that are a lower bound
CREATE TABLE session_totals (           -- the agent's own totals of a session, at some times
    id        <int> PRIMARY KEY,
    session   TEXT NOT NULL,
    at        <int> NOT NULL,           -- time of the line before it
    cost_nano <int>,
    models    TEXT NOT NULL,            -- JSON: the figures of each model
    run       TEXT,                     -- that reported it; NULL: the session's own file
    requests  <int>                     -- that it stands for; NULL: unknown
);
CREATE INDEX session_totals_session ON session_totals (session, at);
CREATE TABLE inherited (                -- requests that a file repeats from another session
    session   TEXT NOT NULL,            -- that repeats it
    request   <int> NOT NULL,           -- id in `requests`
    PRIMARY KEY (session, request)
) <by key>;
CREATE INDEX inherited_request ON inherited (request);
{sum_tables.replacement(sum_tables.SPEND_TABLES)}
CREATE INDEX session_spend_cost ON session_spend (cost_nano DESC, requests DESC, session);
CREATE INDEX session_spend_tokens ON session_spend (tokens DESC, session);
"""

# Name and statements; migrations are numbered from 1.
MIGRATIONS: tuple[tuple[str, str], ...] = (
    ("first", INITIAL_SCHEMA),
    ("notes and budgets", NOTES_AND_BUDGETS),
    ("runs without requests", RUNS_WITHOUT_REQUESTS),
    ("labels and origin", LABELS_AND_ORIGIN),
    ("context overhead", CONTEXT_OVERHEAD),
    ("indexes", INDEXES),
    ("sums", sum_tables.migration(sum_tables.FIRST_SUM_TABLES) + INDEXES_BY_NAME),
    ("limits", LIMITS),
    ("search", SEARCH),
    ("calls by time", CALLS_BY_TIME),
    ("team", TEAM),
    ("number of sessions", sum_tables.migration([sum_tables.ROW_COUNTS])),
    ("source of the window", WINDOW_SOURCE),
    ("join", JOIN),
)
