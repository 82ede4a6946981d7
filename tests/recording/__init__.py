"""Tests of `steno.recording`."""
