"""Many tasks at once: task files, a durable queue (DBOS), workers, and what they report."""
