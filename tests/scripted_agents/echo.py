"""Copies its prompt to stdout."""

import shutil
import sys

shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)
