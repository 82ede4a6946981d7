"""Terminal rendering: reports, tables and timelines as lines of text."""
