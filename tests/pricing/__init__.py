"""Tests of `steno.pricing`."""
