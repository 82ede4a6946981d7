"""A steno of its own: carries out a task with a scripted agent and attends to it. Arguments: options as JSON, the program."""

import json
import sys

from steno.agents import Ask
from steno.process import Grace, Loop
from steno.supervise.decide import Policy
from steno.supervise.live import attend
from steno.supervise.task import Task
from steno.supervise.values import Setup

options, program = json.loads(sys.argv[1]), sys.argv[2]
ask = Ask(prompt=options.get("prompt", "hello"), steer=options.get("steer", False))
policy = Policy(attempts=options.get("attempts", 1))
grace = Grace(interrupt=options.get("patience", 2.0), terminate=0.4, quiet=0.2, drain=1.0)
setup = Setup(ask=ask, program=program, policy=policy, grace=grace, record=options.get("record", True))
with Loop() as loop:
    task = Task(loop, setup)
    attend(task)
    task.start()
    assert task.run is not None
    print(task.run.id, flush=True)
    loop.run(until=lambda: task.over)
assert task.report is not None
print(json.dumps({"verdict": task.report.verdict, "text": task.report.text, "warnings": task.report.warnings}), flush=True)
