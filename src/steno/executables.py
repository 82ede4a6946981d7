"""Programs that steno starts: those in absolute folders of PATH, and steno itself.

The current folder is often one that an agent writes in, or that it has named. A relative folder
in PATH (`.`, or an empty entry) and Python's own search path would run programs and modules of it.
"""

import os
import sys
from collections.abc import Collection

# -P: no module of the current folder, which `-m` searches first. -E: none of PYTHONPATH, which may
# be relative, or set by the settings of a project.
ISOLATED_PYTHON = ("-P", "-E")


def own_command(*words: str) -> list[str]:
    """The command line of steno itself, for any folder."""
    return [sys.executable, *ISOLATED_PYTHON, "-m", "steno", *words]


def own_python_path() -> str:
    """PYTHONPATH with which our interpreter finds this package, and nothing of this folder."""
    package_folder = __file__.rpartition("/steno/")[0]
    current = os.path.realpath("")
    folders = (path for path in sys.path if path.startswith(os.sep))
    return os.pathsep.join(
        path for path in folders if path == package_folder or os.path.realpath(path) != current
    )


def find_executable(
    name: str, search_path: str | None = None, excluded: Collection[str] = ()
) -> str | None:
    """The path of a program; of a name without a slash, in PATH or another search path.

    Relative folders are not searched, and neither are `excluded` folders nor what is in them.
    """
    import shutil  # lazy: most commands start nothing

    if os.sep in name:
        return shutil.which(name)
    return shutil.which(name, path=absolute_search_path(search_path, excluded))


def absolute_search_path(search_path: str | None = None, excluded: Collection[str] = ()) -> str:
    """PATH, or another search path, without relative and excluded folders."""
    if search_path is None:
        search_path = os.environ.get("PATH", os.defpath)
    folders = [
        folder
        for folder in search_path.split(os.pathsep)
        if folder.startswith(os.sep) and not _is_below(folder, excluded)
    ]
    return os.pathsep.join(folders)


def _is_below(folder: str, excluded: Collection[str]) -> bool:
    path = os.path.realpath(folder) if excluded else folder
    return any(path == other or path.startswith(other.rstrip("/") + "/") for other in excluded)
