"""Tests of `steno.testing`."""
