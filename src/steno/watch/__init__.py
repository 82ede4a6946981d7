"""A stream on its way from an agent to whoever reads it: passed on untouched, understood, and recorded if that is asked for."""
