"""The database of runs, sessions and requests, imported from recordings and transcripts."""
