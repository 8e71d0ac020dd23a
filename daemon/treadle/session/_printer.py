"""What a server wrote, made fit for people (floor 1, pure)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from treadle.errors import (
    CursorRepeated,
    DuplicateTool,
    Fault,
    FieldFault,
    NotCarriable,
    ServerError,
    VersionUnsupported,
)
from treadle.text import ELLIPSIS, cap, quote, sanitise
from treadle.wire.interchange import json_to_value, redact_json
from treadle.wire.jsonrpc import ErrorResponse
from treadle.wire.messages import InitializeResult

_NAME_LIMIT: Final = 200
_ERROR_MESSAGE_LIMIT: Final = 65_536
_QUOTED_BYTES: Final = 65_536
_REDACTED_DATA_LIMIT: Final = 65_536
"""Bytes of an error's data that are searched for secrets text by text; without secrets there is no limit."""


class Printer:
    """Redacts, then sanitises, then cuts: half a secret would not be recognised. None redacts nothing."""

    __slots__ = ("_reach", "_redact")

    def __init__(self, redact: Callable[[str], str] | None) -> None:
        self._redact = redact
        self._reach: int = getattr(redact, "reach", 0)

    def redacted(self, text: str) -> str:
        """``text`` without secrets."""
        return text if self._redact is None else self._redact(text)

    def text(self, text: str, limit: int = _NAME_LIMIT) -> str:
        """``text`` on one line, of at most ``limit`` code points, at a cost that they bound."""
        if self._redact is None:
            return cap(sanitise(text[: limit + 1]), limit)
        window = 2 * limit + 2 * self._reach
        redacted = self._redact(text[:window])
        if len(text) > window:
            # A secret may have been cut at the end of the window, where it is not recognised.
            redacted = redacted[: max(0, len(redacted) - self._reach)] + ELLIPSIS
        return cap(sanitise(redacted), limit)

    def line(self, line: bytes) -> str:
        """The beginning of an offending line."""
        return quote(self.redacted(line[:_QUOTED_BYTES].decode("utf-8", "backslashreplace")))

    def initialized(self, result: InitializeResult) -> InitializeResult:
        """``result`` with the server's own words in it made fit; its version is from a closed list."""
        if self._redact is None:
            return result
        words = {
            "server_name": result.server_name,
            "server_version": result.server_version,
            "instructions": result.instructions,
        }
        return msgspec.structs.replace(
            result, **{key: self._redact(text) for key, text in words.items() if text is not None}
        )

    def fault(self, fault: Fault) -> Fault:
        """``fault`` itself, with the server's own words in it made fit."""
        match fault:
            case DuplicateTool():
                fault.name = self.text(fault.name)
            case CursorRepeated():
                fault.cursor = self.text(fault.cursor)
            case VersionUnsupported():
                fault.server = self.text(fault.server)
            case FieldFault():
                fault.found = self.text(fault.found)
            case NotCarriable() if self._redact is not None and ELLIPSIS in fault.path:
                fault.path = "$"  # its keys were cut before they could be redacted
        return fault

    def error(self, answer: ErrorResponse) -> ServerError:
        """The server's error as the caller gets it, with code 0 where the code is a secret. Raises
        :class:`~treadle.errors.NotCarriable` for ``data`` that msgpack cannot say.
        """
        data = answer.data
        if data is not None:
            json_to_value(data, at=("data",))
        message = self.text(answer.message, _ERROR_MESSAGE_LIMIT)
        if data is not None and self._redact is not None:
            if len(data) > _REDACTED_DATA_LIMIT:
                message += f" (its data of {len(data)} bytes is too long to look for secrets in, and was left out)"
                data = None
            else:
                data = redact_json(data, self._redact)
        code = str(answer.code)
        return ServerError(answer.code if self.redacted(code) == code else 0, message, data)
