"""Ignores SIGINT and SIGTERM, as does its child."""

import os
import signal
import time

signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    print("ready", flush=True)
time.sleep(600)
