"""The tests of steno; a package so that they can share `script` and run `python -m tests.fuzz`."""
