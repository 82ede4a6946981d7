"""Prints a number of lines of a size."""

import sys

count, size = map(int, sys.argv[1:])
for number in range(count):
    sys.stdout.write(f"{number:09d}" + "x" * (size - 10) + "\n")
