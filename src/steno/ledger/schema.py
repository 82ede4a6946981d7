"""The tables of the ledger, as numbered migrations in SQL that SQLite and PostgreSQL accept.

Times are milliseconds since 1970 (UTC), money is integer nano-dollars, unknown figures are NULL.
The `id` of rows in `requests`, `calls`, `changes`, `denials` and `texts` is a hash of what they
stand for, so that the same thing in two files is one row; `seq` is the order of insertion, which
keeps new rows together on disk. `spend` and `tool_use` are sums, updated in the transaction that
changes what they sum.

A released migration is never changed: add a new one at the end.
"""

# The stores replace words in <>, where the two databases differ.
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
    role     TEXT NOT NULL,             -- prompt or answer
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

# Name and statements; migrations are numbered from 1.
MIGRATIONS: tuple[tuple[str, str], ...] = (
    ("first", INITIAL_SCHEMA),
    ("notes and budgets", NOTES_AND_BUDGETS),
    ("runs without requests", RUNS_WITHOUT_REQUESTS),
)
