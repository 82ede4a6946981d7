"""Texts and tool calls for generated streams."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

ROOT = "/project"
SMALLEST, LARGEST = 200, 50_000
MEDIAN, SPREAD = 1_340, 1.42
VARIANTS = 160
DELTA = 40
PREVIEW, INLINE = 2_000, 30_000

WORDS = [
    *(
        "parcel",
        "ledger",
        "harbor",
        "signal",
        "meter",
        "branch",
        "anchor",
        "window",
        "filter",
        "cursor",
    ),
    *(
        "bucket",
        "column",
        "record",
        "packet",
        "margin",
        "ticket",
        "socket",
        "vector",
        "folder",
        "thread",
    ),
    *("sample", "binder", "beacon", "shelf", "carton", "ribbon", "kernel", "canvas"),
]

PLAIN = (
    "class {A}{B}:",
    "    def {a}_{b}(self, {c}: str, limit: int = {n}) -> dict[str, int]:",
    '        """Return the {a} of one {b}, or "none" when the {c} is gone."""',
    "        if not {a} or {b}.get('{c}') is None:",
    '            raise ValueError(f"no {a} in {{{b}!r}}: {n} tried")',
    '        {a} = re.sub(r"\\s+\\d{{2}}", "\\t", {b})',
    '        return {{key: len(value) for key, value in {a}.items() if key != "{c}"}}',
    "",
    "    # keep the {a} small: the {b} asks for it on every {c}",
    '2026-11-15 06:{s}:{t} INFO {a}.{b} "GET /api/{c}/{n}" 200 {s}ms',
    "tests/test_{a}.py::test_{b}_{c} PASSED                                  [ {s}%]",
    'src/{a}/{b}.py:{n}:5: error: Argument "{c}" has no type "str | None"',
    '  "{a}": {{"{b}": {n}, "{c}": [true, null, "{a}/{b}"]}},',
    "C:\\build\\{a}\\{b}\\{c}_{n}.obj",
    "-rw-r--r-- 1 dev dev {n} Nov 15 06:{s} {a}/{b}_{c}.txt",
    "\tmov\t{a}, [{b} + {n}]\t; {c}",
)
FOREIGN = (
    "# Größe des {a} in Byte → {n}, nie größer als «{b}»",
    "✓ {a} {b} ({s} ms)  — café, naïve, 東京 {c}",
    "print(\"{a}: żółw, {b} ≤ {n} …\", end='\\n')",
    "\x1b[32m●\x1b[0m {a} {b} \x1b[1m{n}\x1b[0m",
)
SENTENCES = (
    "The {a} keeps its own {b}, so the {c} can be read without a lock.",
    'I\'ll open `src/{a}/{b}.py` next and see where the "{c}" is made.',
    "That test fails because the {a} is closed before the {b} is flushed:\n\n"
    "```python\n{c}.close()\n```\n",
    "Two things are left: the {a} \\ {b} path on Windows, and the {c} — both are small.",
    "Running the {a} tests again now that the {b} returns {n} rows.",
)

Deltas = tuple[bytes, ...]


class Text(NamedTuple):
    """A text or thinking block, and its deltas."""

    block: bytes
    start: bytes
    deltas: Deltas


class Call(NamedTuple):
    """A tool call with its result; all fields except the name are encoded JSON."""

    name: bytes
    input: bytes
    content: bytes
    result: bytes
    failed: bool
    deltas: Deltas


class Pool(NamedTuple):
    """Everything a stream draws from."""

    small: Call
    calls: dict[str, list[Call]]
    texts: list[Text]
    thoughts: list[Text]


class Shelf:
    """Seeded text of any size, cut from two long texts: ASCII only, and with other scripts."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.plain = self.body(PLAIN)
        self.foreign = self.body(PLAIN + FOREIGN)

    def fill(self, template: str) -> str:
        a, b, c = self.rng.sample(WORDS, 3)
        names = {"a": a, "b": b, "c": c, "A": a.title(), "B": b.title()}
        two = self.rng.randrange(10, 60)
        return template.format(**names, n=self.rng.randrange(1, 9_000), s=two, t=69 - two + 10)

    def body(self, templates: Sequence[str]) -> str:
        return "\n".join(self.fill(self.rng.choice(templates)) for _ in range(3_000))

    def cut(self, size: int) -> str:
        """A run of whole lines of about this many characters."""
        body = self.foreign if self.rng.random() < 0.25 else self.plain
        start = body.index("\n", self.rng.randrange(len(body) - size - 200)) + 1
        return body[start : start + size].rpartition("\n")[0] or body[start : start + size]

    def path(self) -> str:
        return self.fill(ROOT + "/src/{a}/{b}_{c}.py")

    def prose(self, count: int) -> str:
        return " ".join(self.fill(self.rng.choice(SENTENCES)) for _ in range(count))


def encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def sizes(count: int) -> list[int]:
    """Payload sizes on a log-normal curve, with the same mean for every seed."""
    normal = NormalDist(math.log(MEDIAN), SPREAD)
    points = (math.exp(normal.inv_cdf((i + 0.5) / count)) for i in range(count))
    return [min(max(int(point), SMALLEST), LARGEST) for point in points]


def deltas(kind: str, field: str, text: str) -> Deltas:
    pieces = (text[i : i + DELTA] for i in range(0, len(text), DELTA))
    return tuple(encode({"type": kind, field: piece}) for piece in pieces)


def call(
    name: str, given: dict[str, Any], content: object, result: object, failed: bool = False
) -> Call:
    parts = deltas("input_json_delta", "partial_json", json.dumps(given, ensure_ascii=False))
    return Call(name.encode(), encode(given), encode(content), encode(result), failed, parts)


def bash_result(shelf: Shelf, output: str) -> tuple[str, dict[str, Any]]:
    """The displayed content and the result object; of a long output only the start is displayed."""
    result: dict[str, Any] = {
        "stdout": output,
        "stderr": "",
        "interrupted": False,
        "isImage": False,
    }
    result["noOutputExpected"] = False
    if len(output) <= INLINE:
        return output, result
    path = shelf.fill("/srv/dev/.claude/tool-results/{a}-{n}.txt")
    result["persistedOutputPath"], result["persistedOutputSize"] = path, len(output)
    head = output[:PREVIEW]
    shown = (
        f"<persisted-output>\nOutput is long and was saved to {path}\n\n{head}\n</persisted-output>"
    )
    return shown, result


def bash(shelf: Shelf, size: int) -> Call:
    command = shelf.fill(
        'cd src/{a} && python -m pytest -q -k "{b} and not {c}" 2>&1 | tail -n {n}'
    )
    content, result = bash_result(shelf, shelf.cut(size))
    return call(
        "Bash",
        {"command": command, "description": shelf.fill("Run the {a} tests")},
        content,
        result,
    )


def read(shelf: Shelf, size: int) -> Call:
    path, text = shelf.path(), shelf.cut(size)
    lines = text.split("\n")
    shown = "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, 1))
    count = len(lines)
    file = {
        "filePath": path,
        "content": text,
        "numLines": count,
        "startLine": 1,
        "totalLines": count,
    }
    return call("Read", {"file_path": path}, shown, {"type": "text", "file": file})


def patch(lines: list[str], at: int, old: str, new: str) -> dict[str, Any]:
    before = [" " + line for line in lines[max(at - 3, 0) : at]]
    after = [" " + line for line in lines[at + 1 : at + 4]]
    count = len(before) + len(after) + 1
    hunk = [*before, "-" + old, "+" + new, *after]
    first = max(at - 3, 0) + 1
    return {
        "oldStart": first,
        "oldLines": count,
        "newStart": first,
        "newLines": count,
        "lines": hunk,
    }


def edit(shelf: Shelf, size: int) -> Call:
    path, original = shelf.path(), shelf.cut(size)
    lines = original.split("\n")
    at = shelf.rng.randrange(len(lines))
    old, new = lines[at], shelf.fill(shelf.rng.choice(PLAIN))
    given = {"replace_all": False, "file_path": path, "old_string": old, "new_string": new}
    shown = f"The file {path} has been updated. (file state is current — no need to read it back)"
    head = {"filePath": path, "oldString": old, "newString": new, "originalFile": original}
    tail = {
        "structuredPatch": [patch(lines, at, old, new)],
        "userModified": False,
        "replaceAll": False,
    }
    return call("Edit", given, shown, {**head, **tail})


def write(shelf: Shelf, size: int) -> Call:
    path, text = shelf.path(), shelf.cut(size)
    shown = (
        f"File created successfully at: {path} (file state is current — no need to read it back)"
    )
    head = {"type": "create", "filePath": path, "content": text}
    tail: dict[str, Any] = {"structuredPatch": [], "originalFile": None, "userModified": False}
    return call("Write", {"file_path": path, "content": text}, shown, {**head, **tail})


def grep(shelf: Shelf, size: int) -> Call:
    found = shelf.cut(size // 2).split("\n")
    lines = [f"{shelf.path()}:{number}:{line}" for number, line in enumerate(found, 1)]
    shown = "\n".join(lines)
    given = {
        "pattern": shelf.fill('{a}\\(.*"{b}"'),
        "path": ROOT,
        "output_mode": "content",
        "-n": True,
    }
    result = {
        "mode": "content",
        "numFiles": 0,
        "filenames": [],
        "content": shown,
        "numLines": len(lines),
    }
    return call("Grep", given, shown, result)


def failed_bash(shelf: Shelf, size: int) -> Call:
    output = f"Exit code 1\n{shelf.cut(min(size, 4_000))}"
    command = shelf.fill("make {a} && ./run --{b} '{c}'")
    return call(
        "Bash",
        {"command": command, "description": "Build and run"},
        output,
        "Error: " + output,
        failed=True,
    )


def failed_edit(shelf: Shelf, _size: int) -> Call:
    old = shelf.fill(PLAIN[6])
    given = {
        "replace_all": False,
        "file_path": shelf.path(),
        "old_string": old,
        "new_string": "pass",
    }
    reason = f"String to replace not found in file.\nString: {old}"
    return call(
        "Edit", given, f"<tool_use_error>{reason}</tool_use_error>", "Error: " + reason, failed=True
    )


def failed_read(shelf: Shelf, _size: int) -> Call:
    reason = f"File does not exist. Note: your current working directory is {ROOT}."
    return call("Read", {"file_path": shelf.path()}, reason, "Error: " + reason, failed=True)


def small_bash(shelf: Shelf) -> Call:
    content, result = bash_result(shelf, "README.md\nsrc")
    return call("Bash", {"command": "ls", "description": "List files"}, content, result)


MAKERS: dict[str, Callable[[Shelf, int], Call]] = {
    "bash": bash,
    "read": read,
    "edit": edit,
    "write": write,
    "grep": grep,
    "failed bash": failed_bash,
    "failed edit": failed_edit,
    "failed read": failed_read,
}
SHARES = {
    "bash": 39.0,
    "read": 29.0,
    "edit": 15.0,
    "write": 6.0,
    "grep": 8.0,
    "failed bash": 1.8,
    "failed edit": 0.8,
    "failed read": 0.4,
}


def text(shelf: Shelf, count: int) -> Text:
    words = shelf.prose(count)
    block = encode({"type": "text", "text": words})
    return Text(block, b'{"type":"text","text":""}', deltas("text_delta", "text", words))


def thought(shelf: Shelf, count: int) -> Text:
    words, signature = shelf.prose(count), shelf.rng.randbytes(150).hex()
    block = encode({"type": "thinking", "thinking": words, "signature": signature})
    parts = deltas("thinking_delta", "thinking", words)
    last = encode({"type": "signature_delta", "signature": signature})
    return Text(block, b'{"type":"thinking","thinking":"","signature":""}', (*parts, last))


def pool(seed: int) -> Pool:
    """The same seed always gives the same pool."""
    shelf = Shelf(random.Random(seed))
    calls = {name: [make(shelf, size) for size in sizes(VARIANTS)] for name, make in MAKERS.items()}
    texts = [text(shelf, 1 + i % 5) for i in range(VARIANTS)]
    thoughts = [thought(shelf, 2 + i % 8) for i in range(VARIANTS)]
    return Pool(small_bash(shelf), calls, texts, thoughts)
