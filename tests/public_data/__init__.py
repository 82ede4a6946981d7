"""A lane of tests on the recordings in other projects' repositories: see `__main__.py`."""
