"""Tests of `steno.agents`."""
