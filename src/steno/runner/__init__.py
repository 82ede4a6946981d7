"""Run agents: prepare a task, carry out its attempts, retry, hand over, record, control."""
