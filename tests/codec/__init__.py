"""Tests of `steno.codec`."""
