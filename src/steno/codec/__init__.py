"""Bytes to lines and tolerant JSON; redaction of secrets. Pure."""
