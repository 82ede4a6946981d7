"""A zip archive on this machine as a destination. It is written as a copy beside it, which takes its place at the end.

So the archive is as it was, or whole, whatever happens. Nothing is ever deleted in it: of a file that was put again, the
archive holds the older bytes too, and its last word counts.
"""

import hashlib
import os
import re
import shutil
import threading
import time
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ..files.inside import is_name
from ..files.rules import TEMPORARY
from ..report import StenoError
from .content import CHUNK, Content, hashed
from .folder import NEW, TOP, owned, remove_left
from .values import Trouble
from .where import folder

CLOSED = "the archive is closed"
ANOTHER = "another sync writes this archive"
_FORM = re.compile(r"zip(?:://(?P<inner>[^:]*))?::(?P<place>.+)", re.S)


class Archive:
    """A destination."""

    looks_first = True  # asking what is there costs nothing
    answers = True
    deletes = False
    at_end = True

    def __init__(self, path: str, inner: str) -> None:
        self.path, self._inner = os.path.realpath(path), inner
        self.name = f"zip://{inner}::{self.path}"
        self._folder = Path(self.path).parent
        name = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        self._copy = self._folder / f"{TEMPORARY}{name}"  # the same for all who write this archive: one at a time
        self._one = threading.Lock()
        self._file: IO[bytes] | None = None
        self._zip: zipfile.ZipFile | None = None
        self._old: zipfile.ZipFile | None = None
        self._broken: str | None = None  # why the copy is of no use
        self._written = False

    def begin(self) -> None:
        """Make the copy, with all that the archive has."""
        with self._alone():
            if self._zip is not None:
                return
            if self._broken is not None:
                raise Trouble(self._broken, lasting=True)
            self._folder.mkdir(parents=True, exist_ok=True)
            with _opened(self._folder) as at:
                remove_left(at)
            self._zip = self._copied()

    def same(self, name: str, content: Content) -> bool:
        """Whether these bytes are there already."""
        path = self._path(name)
        with self._alone(), suppress(KeyError):
            found = self._reading()
            if found is not None and found.getinfo(path).file_size == content.size:
                with found.open(path) as file:
                    return hashed(file) == content.digest
        return False

    def put(self, name: str, content: Content) -> None:
        """Put a file there."""
        about = zipfile.ZipInfo(self._path(name), time.localtime()[:6])
        about.external_attr, about.file_size = (0o100000 | content.mode) << 16, content.size
        with self._alone():
            if self._broken is not None or self._zip is None:
                raise Trouble(self._broken or CLOSED, lasting=True)
            try:
                self._write(self._zip, about, content)
            except BaseException as problem:  # what follows would stand behind half a file
                self._broken = getattr(problem, "strerror", None) or str(problem)
                raise
            self._written = True

    def delete(self, name: str) -> bool:
        """Nothing is."""
        raise Trouble("nothing can be deleted in an archive", lasting=True)

    def names(self) -> list[str]:
        """Every file that is there."""
        with self._alone():
            found = self._reading()
            start = f"{self._inner}/" if self._inner else ""
            every = dict.fromkeys(found.namelist()) if found is not None else {}
            return [name[len(start) :] for name in every if name.startswith(start) and not name.endswith("/")]

    def close(self) -> None:
        """The copy takes the archive's place, if it is whole."""
        with self._alone():
            if self._old is not None:
                self._old.close()
            if self._zip is None:
                self._broken = self._broken or CLOSED
                return
            try:
                self._end(self._zip)
            finally:
                self._zip.fp = None  # so that it writes no more, whatever went wrong
                self._zip, self._broken = None, self._broken or CLOSED
                self._drop()

    # -- the archive ---------------------------------------------------------------------------------------------

    def _copied(self) -> zipfile.ZipFile:
        """The copy, open; as long as its lock is held, nobody takes it for a leftover."""
        try:
            file = self._file = os.fdopen(os.open(self._copy, NEW, 0o666), "r+b")
        except FileExistsError:
            raise Trouble(ANOTHER) from None
        try:
            if not owned(file.fileno(), self._copy):
                raise Trouble(ANOTHER)
            with suppress(FileNotFoundError), open(self.path, "rb") as old:  # noqa: PTH123
                if os.fstat(old.fileno()).st_size and not zipfile.is_zipfile(old):
                    raise zipfile.BadZipFile(f"{self.path} is no zip archive")
                old.seek(0)
                shutil.copyfileobj(old, file)
                os.fchmod(file.fileno(), os.fstat(old.fileno()).st_mode & 0o777)
            return zipfile.ZipFile(file, "a")
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        """Let go of the copy, which is removed if it is still one, and ours."""
        if self._file is not None:
            with suppress(OSError):
                if self._is_ours(self._file):
                    self._copy.unlink()
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _is_ours(self, file: IO[bytes]) -> bool:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(self._copy))

    def _end(self, found: zipfile.ZipFile) -> None:
        if self._broken is not None:
            raise Trouble(self._broken, lasting=True)
        if self._written and self._file is not None:
            found.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            if not self._is_ours(self._file):
                raise Trouble("its copy was removed while it was written")
            self._copy.replace(self.path)
            with _opened(self._folder) as at:
                os.fsync(at)

    def _reading(self) -> zipfile.ZipFile | None:
        """The archive as it is now; None where there is none yet."""
        if self._zip is None and self._old is None and Path(self.path).exists():
            self._old = zipfile.ZipFile(self.path)
        return self._zip or self._old

    def _write(self, into: zipfile.ZipFile, about: zipfile.ZipInfo, content: Content) -> None:
        source = content.rewound()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the name is there already
            with into.open(about, "w") as file:
                while data := source.read(CHUNK):
                    file.write(data)

    def _path(self, name: str) -> str:
        if not is_name(name):
            raise Trouble("this can be no name in an archive", lasting=True)
        return f"{self._inner}/{name}" if self._inner else name

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One at a time; whatever goes wrong is told as trouble."""
        with self._one:
            try:
                yield
            except OSError as problem:
                raise Trouble(problem.strerror or str(problem)) from None
            except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, UnicodeError) as problem:
                raise Trouble(f"{problem}", lasting=True) from None


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    found = os.open(path, TOP)
    try:
        yield found
    finally:
        os.close(found)


def parts(url: str) -> tuple[str, str]:
    """The archive that a URL means, and the folder in it. StenoError where it is none on this machine."""
    found = _FORM.fullmatch(url)
    place = found["place"] if found is not None else ""
    path = folder(place if place.startswith(("file://", "local://")) else f"dir:{place}") if place else ""
    inner = (found["inner"] or "").strip("/") if found is not None else ""
    if not path or path.endswith("/") or "://" in path or "::" in path or (inner and not is_name(inner)):
        raise StenoError(f"{url}: an archive is written on this machine only, such as zip://::file:///backup/project.zip")
    return path, inner
