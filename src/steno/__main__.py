"""`python -m steno`: same as the command `steno`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
