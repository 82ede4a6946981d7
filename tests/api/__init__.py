"""Tests of `steno.api`."""
