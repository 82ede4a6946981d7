"""A steno process that runs a registered task. Arguments: options as JSON, the program."""

import json
import sys

from steno.agents import LaunchOptions
from steno.process import GracePeriods, ProcessLoop
from steno.runner.retry_policy import RetryPolicy
from steno.runner.setup import TaskSetup
from steno.runner.task import Task
from steno.runner.task_runner import RunRegistration

options = json.loads(sys.argv[1])
program = sys.argv[2]
launch_options = LaunchOptions(
    prompt=options.get("prompt", "hello"), steer=options.get("steer", False)
)
policy = RetryPolicy(attempts=options.get("attempts", 1))
grace = GracePeriods(interrupt=options.get("patience", 2.0), terminate=0.4, quiet=0.2, drain=1.0)
setup = TaskSetup(
    launch_options=launch_options,
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
report = task.report
summary = {"verdict": report.verdict, "text": report.text, "warnings": report.warnings}
print(json.dumps(summary), flush=True)
