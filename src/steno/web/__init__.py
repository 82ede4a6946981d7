"""The page of `steno serve`: the ledger and active runs in a browser (extra `web`)."""
