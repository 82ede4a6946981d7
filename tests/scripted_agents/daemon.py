"""Forks a daemon twice into a session of its own; prints its pid. Arguments: `stay` (do not exit),
`bare` (no environment), `shed` (neither environment nor parent, but the streams: `1` or `2` follows, the one it keeps).
"""

import os
import subprocess
import sys
import time

ready, done = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(done, str(os.getpid()).encode())
        null = os.open(os.devnull, os.O_RDWR)
        for stream in {0, 1, 2} - {int(word) for word in sys.argv[1:] if word.isdecimal()}:
            os.dup2(null, stream)
        bare = "bare" in sys.argv or "shed" in sys.argv
        os.execve("/bin/sleep", ["sleep", "600"], {} if bare else dict(os.environ))
    if "bare" in sys.argv:
        time.sleep(600)  # the one in between stays: a chain of parents leads to the daemon
    os._exit(0)
stay = subprocess.Popen(["sleep", "600"]) if "stay" in sys.argv else None
print(os.read(ready, 20).decode(), flush=True)
if stay:
    stay.wait()
