"""Structured tool results: the value beside a result that says what the tool did. Pure."""

from msgspec import Raw, Struct
from msgspec.structs import fields, replace

from ...codec.decode import decode_lenient
from ...event import NO_JSON, ToolResultDetails


class PrintedResult(Struct, gc=False):
    """The structured tool result as printed, and the id of its line."""

    tool_use_result: Raw = NO_JSON
    toolUseResult: Raw = NO_JSON
    uuid: str | None = None

    @property
    def result(self) -> Raw:
        return self.toolUseResult if self.tool_use_result is NO_JSON else self.tool_use_result


class NotebookResult(Struct, gc=False):
    """The structured result of NotebookEdit: notebook_path where other tools have filePath."""

    notebook_path: str | None = None
    edit_mode: str | None = None
    original_file: Raw = NO_JSON
    updated_file: Raw = NO_JSON
    error: str | None = None


_DETAIL_KEYS = {part.encode_name for part in fields(ToolResultDetails)} - {"extra"}
_NOTEBOOK_KEYS = set(NotebookResult.__struct_fields__)


def raw_tool_result(data: bytes | Raw) -> Raw:
    return decode_lenient(data, PrintedResult).result


def notebook_details(data: bytes) -> ToolResultDetails:
    """The structured result of NotebookEdit, which has its own field names."""
    printed = raw_tool_result(data)
    result = decode_lenient(printed, NotebookResult)
    return ToolResultDetails(
        notebook_path=result.notebook_path,
        edit_mode=result.edit_mode,
        original_file=result.original_file,
        content=result.updated_file,
        error=result.error,
        extra=_other_keys(printed, _NOTEBOOK_KEYS),
    )


def with_extra(details: ToolResultDetails, printed: Raw) -> ToolResultDetails:
    """The typed result with the keys that its type doesn't have."""
    return replace(details, extra=_other_keys(printed, _DETAIL_KEYS))


def _other_keys(printed: Raw, known: set[str]) -> dict[str, Raw]:
    values = decode_lenient(printed, dict[str, Raw])
    return {name: value for name, value in values.items() if name not in known}
