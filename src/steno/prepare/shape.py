"""The JSON schema that was asked for: from a file or as it is, checked before anything starts."""

from pathlib import Path

from ..report import StenoError
from ..schema import AnswerSchema


def load_json_schema(given: str | None, where: str) -> str | None:
    """The schema's text. StenoError if there is no such file, it is no schema, or nothing is installed to check it with."""
    if given is None:
        return None
    text, name = given, where
    if not given.lstrip().startswith("{") and not (given.lstrip().startswith("[") and not Path(given).exists()):
        name = f"{where} {given}"
        try:
            text = Path(given).expanduser().read_text("utf-8-sig")
        except UnicodeDecodeError:
            raise StenoError(f"{name}: this is not UTF-8") from None
        except (OSError, ValueError) as problem:
            raise StenoError(f"{name}: cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    AnswerSchema(text, name)
    return text
