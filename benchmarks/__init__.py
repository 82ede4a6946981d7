"""The benchmark room: it measures steno beside its peers, and is never imported by the library."""
