"""The ledger: the database of runs, sessions and requests, built from recordings and transcripts; it can always be rebuilt."""
