"""The full-screen view of `steno top`: active and recent runs, gauges, and one run in detail."""
