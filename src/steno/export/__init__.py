"""A run in other forms: its conversation step by step, files to share."""
