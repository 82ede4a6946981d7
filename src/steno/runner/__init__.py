"""A task as attempts: clocks, budgets, resume, wait, hand over. It decides; `process` starts and kills, `reading` understands."""
