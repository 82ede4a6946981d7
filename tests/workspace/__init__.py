"""Tests of `steno.workspace`."""
