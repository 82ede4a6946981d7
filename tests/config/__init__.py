"""Tests of `steno.config`."""
