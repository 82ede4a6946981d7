"""What changed in the agent's folder: told by tools, seen in the file system, and found by git.

`inside` says what lies in a folder, `rules` what is ignored, `index` how it stands on the disk, `watch` that something
stirs there, `git` what a repository can tell, `changes` makes one list of it all, and `patch` a patch of what tools told.
It never changes a file of the agent.
"""
