"""The lines of files and pipes, decompressed, with limits on what is read into memory.

A small file can decompress to any size, and one line can be as large as the disk.
"""

import io
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from ..codec.decode import MAX_LINE_BYTES, LineSplitter, cut_long_lines
from ..errors import SourceError
from ..installation import extra_command

BUFFER_BYTES = 1 << 20
# Recordings compress by 5 to 60. Deflate reaches 1,032, zstd 30,000.
MAX_EXPANSION = 100
FREE_EXPANSION_BYTES = 16 << 20  # allowed in any case
MAX_WINDOW_BYTES = 1 << 27  # of zstd: what `zstd --ultra -22` and `--long` need
# A block of 4 bytes can stand for 128 KB, and a call returns the output of all its input.
ZSTD_INPUT_BYTES = 512
READ_CHUNK_BYTES = 1 << 20  # large: fewer refills of the line buffer
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
TRUNCATED_FILE = "truncated {} file; download or compress it again"


class ExpansionError(Exception):
    """Decompressed data exceeds the limit."""


class _LimitedReader(io.RawIOBase):
    """The bytes of a file without what exceeds MAX_LINE_BYTES in a line."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._line_length = 0  # kept of the unfinished line

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while True:
            # Not readinto1: it waits for more data although it has some.
            data: bytes = self._file.read1(len(buffer))
            is_end = not data
            if self._line_length + len(data) > MAX_LINE_BYTES:
                data = cut_long_lines(data, self._line_length)
            end = data.rfind(b"\n")
            self._line_length = (0 if end >= 0 else self._line_length) + len(data) - end - 1
            if data or is_end:
                buffer[: len(data)] = data
                return len(data)


def limited_lines(file: Any, buffer_bytes: int = BUFFER_BYTES) -> Iterable[bytes]:
    """The lines of an open file, pipe or io.BytesIO, cut to MAX_LINE_BYTES."""
    return io.BufferedReader(_LimitedReader(file), buffer_bytes)


def limited_expansion(chunks: Iterable[bytes], source: "CountingReader") -> Iterator[bytes]:
    """Decompressed chunks, until they exceed what their compressed bytes can be. ExpansionError."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > FREE_EXPANSION_BYTES + MAX_EXPANSION * source.count:
            raise ExpansionError
        yield chunk


class CountingReader:
    """Reads a file and counts its bytes."""

    def __init__(self, file: "io.BufferedReader[Any]") -> None:
        self.count = 0
        self._file = file

    def read(self, size: int) -> bytes:
        """At least one byte, as soon as it is there; b"" at the end."""
        data = self._file.read1(size)
        self.count += len(data)
        return data


def unreadable_error(name: object, error: OSError) -> SourceError:
    """The SourceError for a failed read."""
    if isinstance(error, FileNotFoundError):
        return source_error(name, "no such file or folder")
    return source_error(name, f"cannot be read: {error.strerror or error}")


def source_error(name: object, message: str) -> SourceError:
    return SourceError(f"{name}: {message}", message)


def read_lines(
    path: Path, buffer: int = READ_CHUNK_BYTES, problems: list[str] | None = None
) -> Generator[bytes, None, None]:
    """The lines of a file with their newlines, decompressed from gzip or zstd. Raises SourceError.

    With a list of `problems`, a truncated or damaged file is read as far as possible: the reason is
    appended to the list instead of raised. Use a small buffer to read only the first lines.
    """
    try:
        with io.BufferedReader(io.FileIO(path), buffer) as file:
            yield from decompress_lines(file, str(path), problems)
    except OSError as error:
        raise unreadable_error(path, error) from None


def stream_lines(source: Any, name: str, problems: list[str]) -> Iterator[bytes]:
    """The lines of a file or pipe opened by the caller."""
    try:
        if isinstance(source, io.BufferedReader):
            yield from decompress_lines(source, name, problems)
        else:
            yield from lines_from_chunks(iter(lambda: source.read(READ_CHUNK_BYTES), b""))
    except OSError as error:
        raise unreadable_error(name, error) from None


def decompress_lines(
    file: "io.BufferedReader[Any]", name: str, problems: list[str] | None = None
) -> Iterator[bytes]:
    """The lines of an open file or pipe, as soon as they arrive."""
    head = file.peek(4)[:4]
    if head.startswith((GZIP_MAGIC, ZSTD_MAGIC)):
        chunks = _decompress(file, name, _gunzip if head.startswith(GZIP_MAGIC) else _unzstd)
        return lines_from_chunks(_readable_chunks(chunks, problems))
    status = os.fstat(file.fileno())
    is_small_file = stat.S_ISREG(status.st_mode) and status.st_size <= MAX_LINE_BYTES
    return file if is_small_file else iter(limited_lines(file))  # without the limit: faster


def _decompress(
    file: "io.BufferedReader[Any]",
    name: str,
    unpack: Callable[[CountingReader, str], Iterator[bytes]],
) -> Iterator[bytes]:
    source = CountingReader(file)
    try:
        yield from limited_expansion(unpack(source, name), source)
    except ExpansionError:
        reason = f"decompresses to more than {MAX_EXPANSION} times its size; decompress it first"
        raise source_error(name, reason) from None


def _readable_chunks(chunks: Iterable[bytes], problems: list[str] | None) -> Iterator[bytes]:
    """The chunks up to an error, which goes to `problems` if there is a list and a chunk."""
    has_data = False
    try:
        for chunk in chunks:
            has_data = has_data or chunk != b""
            yield chunk
    except SourceError as error:
        if problems is None or not has_data:
            raise
        problems.append(f"only part of it could be read: {error.strerror}")


def lines_from_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines with their newlines, from chunks of any size."""
    splitter = LineSplitter()
    for chunk in chunks:
        for line in splitter.feed(chunk):
            yield line + b"\n"
    rest = splitter.flush()
    if rest:
        yield rest


def _gunzip(file: CountingReader, name: str) -> Iterator[bytes]:
    import gzip
    import zlib

    try:
        with gzip.GzipFile(fileobj=cast("BinaryIO", file)) as unpacked:
            yield from iter(lambda: unpacked.read1(READ_CHUNK_BYTES), b"")
    except EOFError:
        raise source_error(name, TRUNCATED_FILE.format("gzip")) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise source_error(name, f"damaged gzip: {error}") from None


def _unzstd(file: CountingReader, name: str) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError:
        message = f"compressed with zstd; install support: {extra_command('zstd')}"
        raise source_error(name, message) from None

    context = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    decompressor = context.decompressobj()
    try:
        while data := file.read(ZSTD_INPUT_BYTES):
            while data:
                if decompressor.eof:  # another frame follows
                    decompressor = context.decompressobj()
                yield decompressor.decompress(data)
                data = decompressor.unused_data
    except zstandard.ZstdError as error:
        raise source_error(name, f"damaged zstd: {error}") from None
    if not decompressor.eof:
        raise source_error(name, TRUNCATED_FILE.format("zstd"))
