"""What other packages add to steno, by the entry points of their metadata. It looks for them; it imports none by itself.

Looking must cost next to nothing where there is nothing: the machinery of Python for this takes longer to load than a
report does. So the folders of the path are asked first whether any package so much as names the group.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

METADATA_SUFFIXES = (".dist-info", ".egg-info")


class Plugin(Struct, frozen=True):
    """One entry: its name, what it points at, the package that has it, and how to get it."""

    name: str
    value: str
    package: str
    load: Callable[[], Any]

    def __str__(self) -> str:
        return f"{self.name} = {self.value}" + (f" (package {self.package})" if self.package else "")


def find_plugins(group: str) -> list[Plugin]:
    """Every entry of a group, by the names of the packages: the same on every machine. Nothing of them is loaded."""
    if not any(_mentions_group(place, group.encode()) for place in sys.path):
        return []
    from importlib.metadata import entry_points

    entries = entry_points(group=group)
    plugins = [Plugin(one.name, one.value, one.dist.name if one.dist is not None else "", one.load) for one in entries]
    return sorted(plugins, key=lambda plugin: (plugin.package, plugin.name))


def _mentions_group(place: str, group: bytes) -> bool:
    """Whether a package in a folder of the path names the group. What is no folder may hold packages too: ask there."""
    place = place or os.curdir
    if not os.path.isdir(place):  # noqa: PTH112  # pathlib costs more than the looking
        return os.path.exists(place)  # noqa: PTH110
    return any(group in data for data in _read_entry_points(place))


def _read_entry_points(place: str) -> Iterator[bytes]:
    try:
        names = [name for name in os.listdir(place) if name.endswith(METADATA_SUFFIXES)]  # noqa: PTH208
    except OSError:
        return
    for name in names:
        try:
            with open(os.path.join(place, name, "entry_points.txt"), "rb") as file:  # noqa: PTH118, PTH123
                yield file.read()
        except OSError:
            continue
