"""The terminal: reports, tables and timelines as lines of text. It returns strings and never prints."""
