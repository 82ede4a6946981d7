"""A steno of its own: carries out a task with a scripted agent and attends to it. Arguments: options as JSON, the program."""

import json
import sys

from steno.agents import LaunchOptions
from steno.process import GracePeriods, ProcessLoop
from steno.runner.retry_policy import RetryPolicy
from steno.runner.run_registration import RunRegistration
from steno.runner.setup import TaskSetup
from steno.runner.task import Task

options, program = json.loads(sys.argv[1]), sys.argv[2]
ask = LaunchOptions(prompt=options.get("prompt", "hello"), steer=options.get("steer", False))
policy = RetryPolicy(attempts=options.get("attempts", 1))
grace = GracePeriods(interrupt=options.get("patience", 2.0), terminate=0.4, quiet=0.2, drain=1.0)
setup = TaskSetup(
    launch_options=ask,
    program=program,
    policy=policy,
    grace=grace,
    record=options.get("record", True),
)
with ProcessLoop() as loop:
    task = Task(loop, setup)
    RunRegistration(task)
    task.start()
    assert task.run is not None
    print(task.run.id, flush=True)
    loop.run(until=lambda: task.is_finished)
assert task.report is not None
print(
    json.dumps(
        {"verdict": task.report.verdict, "text": task.report.text, "warnings": task.report.warnings}
    ),
    flush=True,
)
