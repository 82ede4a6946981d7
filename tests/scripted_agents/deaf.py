"""Exits at once, without reading its prompt."""
