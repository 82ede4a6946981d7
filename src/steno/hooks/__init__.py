"""Commands for events: which events are meant, what a command is given, and running it. Only `process` starts it."""
