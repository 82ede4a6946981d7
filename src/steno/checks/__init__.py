"""Rules over reports: a policy, what breaks it, and comparisons of many runs."""
