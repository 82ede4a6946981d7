"""Questions to the ledger, in plain SQL that both databases take: sums, runs, sessions, texts, budgets. They return values."""
