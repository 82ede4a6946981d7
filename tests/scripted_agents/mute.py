"""Closes stdout and stderr, keeps running, and exits with 3."""

import os
import time

os.write(1, b"last words\n")
os.close(1)
os.close(2)
time.sleep(0.3)
os._exit(3)
