"""Tests of `steno.runner`."""
