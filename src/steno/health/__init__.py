"""What is there on this machine, and whether it will do: the agents, and all that steno itself needs. It changes nothing."""
