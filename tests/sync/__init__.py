"""Tests of `steno.sync`."""
