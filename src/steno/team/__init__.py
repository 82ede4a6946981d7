"""Agents side by side: who is active, messages, claims on files, permission requests, MCP server.

Everything shared is in the ledger, so that agents on several machines see the same.
"""
