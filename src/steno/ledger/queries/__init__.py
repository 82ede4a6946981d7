"""Queries of the ledger, one module per command, in SQL that both databases accept."""
