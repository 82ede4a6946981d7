"""Tests of `steno.ledger`."""
