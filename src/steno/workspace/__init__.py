"""What changed in the agent's folder: reported by tools, seen on disk, found by git. Read-only."""
