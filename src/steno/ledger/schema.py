"""The tables of the ledger, as numbered migrations in plain SQL that SQLite and PostgreSQL both take. Text only; runs nothing.

Times are milliseconds since 1970 (UTC), money is integer nano-dollars, a figure that is not known is NULL. Every row of
`requests`, `calls`, `changes`, `denials` and `texts` has a number made of what it stands for (`id`), so that the same
thing told by two files is one row; `seq` is only the order in which rows came, so that new ones lie together on disk.
`spend` and `tool_use` are sums, kept in the transaction that changes what they sum.

A migration is never changed once it was released: a new one is added at the end.
"""

# Words in <> are put in by the store: they are the few places where the two databases differ.
INITIAL_SCHEMA = """
CREATE TABLE sources (
    path        TEXT PRIMARY KEY,       -- a file that was imported, or a recording's folder
    kind        TEXT NOT NULL,          -- transcript, tape or recording
    size        <int> NOT NULL,         -- as it was when it was read
    mtime_ns    <int> NOT NULL,
    inode       <int> NOT NULL,
    done        <int> NOT NULL,         -- bytes that are in the ledger; the next import goes on here
    lines       <int> NOT NULL,         -- lines in those bytes
    head        TEXT NOT NULL,          -- hash of its first bytes: another file under this name is told by it
    tail        TEXT NOT NULL,          -- hash of the last bytes before `done`: so is one that was rewritten
    state       <blob>,                 -- what the reader must remember to go on
    session     TEXT,
    run         TEXT,
    imported_at <int> NOT NULL
);
CREATE TABLE glances (                  -- transcripts of which only the requests were read, for a report that needed no more
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
    project        TEXT,                -- the folder that the agent worked in
    model          TEXT,                -- of the main thread's last request
    title          TEXT,                -- the beginning of the first prompt
    first_at       <int>,
    last_at        <int>,
    prompts        <int> NOT NULL,      -- what people said to it
    turns          <int>,               -- as its runs reported them
    context_used   <int>,               -- of the main thread's last request
    context_limit  <int>,
    context_peak   <int>,
    compactions    <int> NOT NULL,
    reported_nano  <int>,               -- the agent's own account of the whole session, where it keeps one
    stop           TEXT                 -- how the main thread ended last: end_turn, tool_use, error ...
);
CREATE TABLE tasks (
    id          TEXT PRIMARY KEY,
    agent       TEXT,
    project     TEXT,
    prompt      TEXT,
    started_at  <int>,
    ended_at    <int>,
    verdict     TEXT,                   -- NULL while it runs
    attempts    <int> NOT NULL
);
CREATE TABLE runs (
    id             TEXT PRIMARY KEY,
    session        TEXT,
    task           TEXT,
    attempt        <int>,
    why            TEXT,                -- what was decided after it
    agent          TEXT,
    agent_version  TEXT,
    model          TEXT,
    project        TEXT,
    source         TEXT,                -- the tape or recording that it was read from
    started_at     <int>,
    ended_at       <int>,
    duration_ms    <int>,
    verdict        TEXT,                -- NULL while it runs
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
    cost_nano      <int>,               -- this run's own part
    cost_source    TEXT NOT NULL,       -- reported, computed, local (a model server that costs nothing) or unknown
    session_nano   <int>,
    context_used   <int>,
    context_limit  <int>,
    context_peak   <int>,
    tools          <int> NOT NULL,
    tool_errors    <int> NOT NULL,
    files          <int> NOT NULL,
    denials        <int> NOT NULL,
    unknown        <int> NOT NULL,      -- events of kinds that this version does not know
    prompt         TEXT,
    pid            <int>,               -- of the agent while it runs
    report         <blob>               -- the whole report: JSON, packed with zlib
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
    kind           TEXT NOT NULL,       -- request; or rest: what the agent reports of a run beyond the requests it shows
    message        TEXT,
    parent         TEXT,                -- the call of the subagent that asked; NULL: the main thread
    model          TEXT NOT NULL,
    at             <int> NOT NULL,
    input          <int> NOT NULL,
    cache_write    <int> NOT NULL,
    cache_read     <int> NOT NULL,
    output         <int> NOT NULL,
    reasoning      <int> NOT NULL,
    cache_write_1h <int> NOT NULL,      -- the part of cache_write that is kept for an hour
    cost_nano      <int>,               -- NULL: the price is not known
    saved_nano     <int> NOT NULL,      -- what reading from the cache saved
    source         TEXT NOT NULL        -- of its cost: reported (its run's total is), computed or unknown
);
CREATE INDEX requests_session ON requests (session, at);
CREATE INDEX requests_run ON requests (run) WHERE run IS NOT NULL;
CREATE TABLE calls (
    seq          <serial>,
    id          <int> NOT NULL UNIQUE,
    call        TEXT NOT NULL,          -- the agent's own id of it
    agent       TEXT NOT NULL,
    session     TEXT NOT NULL,
    run         TEXT,
    request     <int> NOT NULL,         -- the request that asked for it
    parent      TEXT,
    name        TEXT NOT NULL,
    kind        TEXT NOT NULL,
    target      TEXT,                   -- what it worked on: a path, a command, a pattern
    at          <int> NOT NULL,
    duration_ms <int>,
    ok          <int>,                  -- NULL: no answer was seen
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
    path     TEXT NOT NULL,             -- relative to the project where it lies inside
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
    rule     TEXT,                      -- the rule that would allow it
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
CREATE TABLE pruned (                   -- requests and calls whose rows are gone while their sums stay: a copy adds nothing
    id <int> PRIMARY KEY                -- and sessions and runs that are gone: a rebuild does not bring them back
);
CREATE TABLE spend (
    session         TEXT NOT NULL,
    model           TEXT NOT NULL,
    hour            <int> NOT NULL,     -- hours since 1970 (UTC)
    agent           TEXT NOT NULL,
    project         TEXT NOT NULL,      -- empty: not known
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
    errors     <int> NOT NULL,          -- answered with an error, refusals not among them
    denied     <int> NOT NULL,
    open       <int> NOT NULL,          -- never answered
    timed      <int> NOT NULL,          -- calls whose duration is known
    total_ms   <int> NOT NULL,          -- of those
    slowest_ms <int> NOT NULL,
    PRIMARY KEY (hour, agent, project, name)
) <by key>;
CREATE INDEX tool_use_name ON tool_use (name, calls, errors, denied, open, timed, total_ms, slowest_ms);
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

MIGRATIONS: tuple[tuple[str, str], ...] = (
    ("first", INITIAL_SCHEMA),
    ("notes and budgets", NOTES_AND_BUDGETS),
)
"""Name and statements of each migration; the number of one is its place, from 1."""
