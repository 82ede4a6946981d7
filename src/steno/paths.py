"""Paths as agents name them: where one stands to the folder that the agent works in. Pure: it never looks at a disk."""

import posixpath


def resolve_path(path: str, root: str | None) -> tuple[str, str, bool]:
    """A path relative to `root` where it lies below it, its absolute form, and whether it does.

    Containment is by whole names: `/proj2` is not below `/proj`.
    """
    absolute = path
    if absolute[:1] != "/" or "//" in absolute or "/." in absolute:
        absolute = posixpath.normpath(posixpath.join(root or "", absolute))
    start = "" if root is None else root.rstrip("/") + "/"
    inside = bool(root) and absolute.startswith(start)
    return (absolute[len(start) :] if inside else absolute), absolute, inside
