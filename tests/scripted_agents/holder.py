"""Exits at once; a child keeps stdout and stderr open, and with an argument keeps printing."""

import subprocess
import sys

CHATTER = "import time\nwhile True: print('still here', flush=True); time.sleep(0.05)"
subprocess.Popen([sys.executable, "-c", CHATTER] if sys.argv[1:] else ["sleep", "600"])
print("done", flush=True)
