"""Tests of `steno.process`."""
