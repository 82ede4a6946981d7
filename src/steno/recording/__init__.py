"""Recordings: open, discover, parse, record, replay."""
