"""Tests of `steno.views`."""
