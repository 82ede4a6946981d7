"""A wrapper that ignores signals, around a program that exits cleanly on SIGINT (like gemini)."""

import signal
import subprocess
import sys
from pathlib import Path

signal.signal(signal.SIGINT, lambda number, frame: None)
signal.signal(signal.SIGTERM, lambda number, frame: None)
sys.exit(subprocess.call([sys.executable, str(Path(__file__).with_name("polite.py"))]))
