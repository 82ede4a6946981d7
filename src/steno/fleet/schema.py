"""The tables of the fleet; those of the queue are DBOS's own."""

MIGRATIONS = (
    (
        "fleet",
        """
        CREATE TABLE fleet_batches (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, source TEXT, created_at <int> NOT NULL,
            jobs <int>, rate_count <int>, rate_seconds REAL, budget_nano <int>);
        CREATE TABLE fleet_tasks (
            id TEXT PRIMARY KEY, batch TEXT NOT NULL, number <int> NOT NULL, name TEXT NOT NULL,
            agent TEXT NOT NULL, model TEXT, state TEXT NOT NULL, generation <int> NOT NULL,
            takeovers <int> NOT NULL, worker TEXT, host TEXT, cwd TEXT, session TEXT, run TEXT,
            verdict TEXT, error TEXT, cost_nano <int>, reserved_nano <int>, tokens <int>,
            queued_at <int>, admitted_at <int>, started_at <int>, ended_at <int>);
        CREATE INDEX fleet_tasks_state ON fleet_tasks (batch, state, verdict, cost_nano);
        CREATE INDEX fleet_tasks_name ON fleet_tasks (batch, name);
        CREATE INDEX fleet_tasks_queued ON fleet_tasks (batch, queued_at, number)
            WHERE state = 'waiting';
        CREATE INDEX fleet_tasks_admitted ON fleet_tasks (batch, admitted_at);
        CREATE INDEX fleet_tasks_worker ON fleet_tasks (worker, state);
        CREATE INDEX fleet_tasks_running ON fleet_tasks (state, agent, model);
        CREATE TABLE fleet_specs (id TEXT PRIMARY KEY, spec TEXT NOT NULL);
        CREATE TABLE fleet_results (id TEXT PRIMARY KEY, text TEXT NOT NULL);
        CREATE TABLE fleet_tags (task TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
            PRIMARY KEY (task, name));
        CREATE INDEX fleet_tags_name ON fleet_tags (name, value);
        CREATE TABLE fleet_needs (task TEXT NOT NULL, needs TEXT NOT NULL,
            PRIMARY KEY (task, needs));
        CREATE INDEX fleet_needs_other ON fleet_needs (needs);
        CREATE TABLE fleet_workers (
            id TEXT PRIMARY KEY, host TEXT NOT NULL, pid <int> NOT NULL, jobs <int> NOT NULL,
            started_at <int> NOT NULL, seen_at <int> NOT NULL, lease_ms <int> NOT NULL,
            state TEXT NOT NULL);
        CREATE TABLE fleet_limits (kind TEXT NOT NULL, name TEXT NOT NULL, most <int> NOT NULL,
            PRIMARY KEY (kind, name));
        CREATE TABLE fleet_pauses (agent TEXT PRIMARY KEY, until <int> NOT NULL, reason TEXT);
        """,
    ),
    (
        "fleet_retries",
        "CREATE TABLE fleet_retries (id TEXT PRIMARY KEY, request TEXT NOT NULL);",
    ),
)
