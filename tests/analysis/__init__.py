"""Tests of `steno.analysis`."""
