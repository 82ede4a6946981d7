"""The pages on the library and on the checks for agents."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Literal, get_origin

from meanings import RUN_KEYWORDS, SCOPE_KEYWORDS
from source import (
    Field,
    Shape,
    code_type,
    docstring,
    page,
    shape_of,
    shapes,
    table,
    text_block,
    typed,
)

import steno
from steno import testing
from steno.config import SETTINGS_BY_NAME
from steno.ledger import importer, results, totals
from steno.testing import checks

DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
ELSEWHERE = {
    "Report": "Fields: [report](report.md).",
    "RunStream": "Returned by [stream](#stream).",
    "Ledger": "`scope` stands for the keywords of [QueryScope](#queryscope).",
}
ON_OTHER_PAGES = {
    "Event": "Base class of all [events](events.md).",
    "TaskReport": "A [report](report.md#taskreport) of a task with its attempts.",
}
VERDICT_TYPE = (
    "Literal type of the [verdicts](verdicts.md), so that a type checker finds misspelt and "
    "unhandled ones."
)
RESULT_TYPES = (
    (results, ("RunSummary", "SessionSummary", "Note")),
    (
        totals,
        ("UsageReport", "UsageRow", "UsageTotals", "WastedCost", "ContextPeak", "ToolCallStats"),
    ),
    (results, ("SearchHit",)),
    (importer, ("ImportResult",)),
)
RESULTS_INTRODUCTION = (
    "`as_json()` of a run, session or search hit returns plain values. Times are milliseconds "
    "since 1970, `nano` is nano-dollars; `?` marks types that can be None (unknown). "
    "`Tokens`, `Cost` and `Context` are those of a [report](report.md). Fields of runs "
    "and sessions are described at the [ledger tables](ledger.md)."
)


def library_page() -> str:
    return page(
        "Library",
        _indented(steno.__doc__ or ""),
        *_names(steno),
        "## Results of the ledger",
        RESULTS_INTRODUCTION,
        *_result_types(),
    )


def _result_types() -> Iterator[str]:
    for shape in (shapes(module)[name] for module, names in RESULT_TYPES for name in names):
        yield f"### {shape.name}"
        yield shape.text
        lines = [f"{field.name}: {code_type(field.type)}" for field in shape.fields]
        lines += [
            f"{method.name}: {code_type(ast.unparse(method.returns))}"
            f"  # {docstring(ast.get_docstring(method))}"
            for method in shape.methods
            if _is_property(method) and method.returns is not None
        ]
        yield text_block(lines)


def testing_page() -> str:
    return page(
        "Checks for agents",
        _indented(testing.__doc__ or ""),
        *_names(testing),
        "## The checks",
        _checks(),
    )


def _names(module: ModuleType) -> Iterator[str]:
    result_types = {name for _, names in RESULT_TYPES for name in names}
    for name in sorted(module.__all__, key=lambda name: (name[0].isupper(), name)):
        if name in result_types:
            continue  # in a section of their own
        if get_origin(getattr(module, name)) is Literal:
            yield f"## {name}"
            yield VERDICT_TYPE
            continue
        home = sys.modules[getattr(module, name).__module__]
        tree = ast.parse(Path(str(home.__file__)).read_text("utf-8"))
        node = next(
            part for part in tree.body if isinstance(part, DEFINITIONS) and part.name == name
        )
        yield f"## {name}"
        yield from (
            _of_class(node, module.__name__)
            if isinstance(node, ast.ClassDef)
            else _of_function(node, f"{module.__name__}.{name}")
        )


def _checks() -> list[str]:
    rows = [[f"`{check.__name__}`", docstring(check.__doc__)] for check in checks.CHECKS]
    return table(["check", "requirement for every recording"], rows)


def _of_class(node: ast.ClassDef, module: str) -> Iterator[str]:
    shape = shape_of(node)
    inits = [
        part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"
    ]
    has_public_init = inits and node.name != "RunStream"
    arguments = _arguments(inits[0]) if has_public_init else ""
    if has_public_init:
        yield f"```text\nclass {module}.{node.name}({arguments})\n```"
    yield ON_OTHER_PAGES.get(node.name, shape.text)
    yield f"Base class: `{shape.base}`." if shape.base not in ("", "Struct", "TypedDict") else ""
    yield ELSEWHERE.get(node.name, "")
    if shape.base == "TypedDict":
        yield from _keywords(shape)
    yield text_block(_methods(shape))


def _methods(shape: Shape) -> list[str]:
    """The methods with their docstrings, as in `help(CLASS)`."""
    lines = []
    for method in shape.methods:
        lines += [f"{shape.name}.{_signature(method, method.name)}"]
        text = docstring(ast.get_docstring(method)).split("\n")
        lines += [f"    {line}".rstrip() for line in text]
    return [line for line in lines if line]


def _keywords(shape: Shape) -> Iterator[str]:
    """A table of the keywords; those that are settings are described on their own page."""
    meanings = SCOPE_KEYWORDS if shape.name == "QueryScope" else RUN_KEYWORDS
    settings = [field for field in shape.fields if field.name not in meanings]
    rows = [
        [f"`{field.name}`", typed(_keyword_type(field), {}), meanings[field.name]]
        for field in shape.fields
        if field.name in meanings
    ]
    yield "\n".join(table(["keyword", "type", "meaning"], rows))
    if settings:
        if unknown := {field.name for field in settings} - set(SETTINGS_BY_NAME):
            raise SystemExit(f"library.md: no description for {sorted(unknown)}")
        yield "The other keywords are [settings](settings.md):"
        yield text_block([f"{field.name}: {_keyword_type(field)}" for field in settings])


def _keyword_type(field: Field) -> str:
    """The type without None, which every keyword of these classes takes for its default."""
    return re.sub(r"\bStrPath\b", "str | PathLike", field.type).removesuffix(" | None")


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[str]:
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    yield f"```text\n{prefix}{_signature(node, name)}\n```"
    yield docstring(ast.get_docstring(node))


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    returns = (
        f" -> {ast.unparse(node.returns)}".replace("ev.", "").replace("'", "")
        if node.returns is not None
        else ""
    )
    if _is_property(node):
        return name + returns.replace(" ->", ":")
    return f"{name}({_arguments(node)}){returns}"


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return [ast.unparse(decorator) for decorator in node.decorator_list] == ["property"]


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = re.sub(r"^self(, )?", "", ast.unparse(node.args)).replace("ev.", "")
    return re.sub(r"(: [^=,]+)=", r"\1 = ", arguments)


def _indented(text: str) -> str:
    """A docstring with its indented example as a code block."""
    return re.sub(
        r"\n\n((?: {4}.*\n|\n)+)\n",
        lambda match: f"\n\n```text\n{_outdented(match[1])}\n```\n\n",
        text,
    ).strip()


def _outdented(text: str) -> str:
    return "\n".join(line[4:] for line in text.rstrip().split("\n"))
