"""`python -m steno`: the same as the program `steno`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
