"""Forks a daemon into its own session and prints its pid.

Arguments: `stay` (do not exit), `bare` (no environment), `shed` (no environment, no parent; a `1`
or `2` after it is the stream that it keeps), `hidden` (no parent; only root can read its
environment and its files, as for ssh-agent).
"""

import ctypes
import os
import subprocess
import sys
import time

sys.stdin.readline()  # a caller may let it wait
ready, done = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in {0, 1, 2} - {int(word) for word in sys.argv[1:] if word.isdecimal()}:
            os.dup2(null, stream)
        if "hidden" in sys.argv:
            ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
            os.write(done, str(os.getpid()).encode())
            time.sleep(600)
        os.write(done, str(os.getpid()).encode())
        bare = "bare" in sys.argv or "shed" in sys.argv
        os.execve("/bin/sleep", ["sleep", "600"], {} if bare else dict(os.environ))
    if "bare" in sys.argv:
        time.sleep(600)  # the process in between stays: the daemon has a parent
    os._exit(0)
stay = subprocess.Popen(["sleep", "600"]) if "stay" in sys.argv else None
print(os.read(ready, 20).decode(), flush=True)
if stay:
    stay.wait()
