"""Tests of `steno.cli`."""
