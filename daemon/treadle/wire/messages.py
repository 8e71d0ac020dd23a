"""The MCP messages that this client sends, and what it keeps of the answers (floor 0, pure).

The rules are those of the client page, section 3. Everything that a server says is untrusted data. What the broker
itself relies on is checked, and a breach names the field; schemas and other content cross raw. The faults raised
here quote the server as it wrote: whoever keeps them makes that fit to print.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Required, TypedDict, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from treadle.errors import FieldFault, InvalidArgument, ToolsNotDeclared, VersionUnsupported
from treadle.text import cap, quote, sanitise
from treadle.wire.interchange import BLOCK_DEPTH, json_to_value

PROTOCOL_VERSIONS: Final = ("2025-06-18", "2025-03-26", "2024-11-05")
"""The MCP revisions that are spoken, newest first; the first is asked for. A closed list."""

EXTRA_VERSIONS: Final = ("2025-11-25",)
"""The revisions that the configuration of a server may accept besides (key ``accept_versions``)."""

Content = Literal["text", "all"]
"""Whether content blocks other than text are reduced to their kind, or keep their payload."""

_LABEL_LIMIT: Final = 256


ABSENT: Final = UNSET
"""Stands for a field that was not sent, where null is a value of its own. An encoder leaves such a field out."""


class InitializeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of an ``initialize`` result. ``server_name`` and ``server_version`` are fit to print."""

    version: str
    list_changed: bool | None
    server_name: str | None
    server_version: str | None
    instructions: str | None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a listing. Schemas and annotations are compact raw JSON, None when absent or null (an
    ``input_schema`` is always there, and may be ``null``)."""

    name: str
    title: str | None
    description: str | None
    input_schema: bytes
    output_schema: bytes | None
    annotations: bytes | None


class ToolsPage(msgspec.Struct, frozen=True):
    """One page of a listing, and the cursor of the next one; None ends the listing."""

    tools: tuple[Tool, ...]
    next_cursor: str | None


class CallResult(msgspec.Struct, frozen=True, gc=False):
    """A settled call. ``content`` holds msgpack-ready blocks; ``structured`` is :data:`ABSENT` or any value."""

    content: list[dict[str, Any]]
    is_error: bool
    structured: Any | UnsetType = ABSENT

    def to_value(self) -> dict[str, Any]:
        """The value of a ``call`` answer (socket page): ``{content, is_error, structured?}``."""
        value: dict[str, Any] = {"content": self.content, "is_error": self.is_error}
        if self.structured is not ABSENT:
            value["structured"] = self.structured
        return value


# --- sent ----------------------------------------------------------------------------------------------------


def initialize_params(version: str, client_version: str) -> bytes:
    """The parameters of ``initialize``. The client declares no capability at all: no sampling, no roots, no
    elicitation; widening that is a security decision.
    """
    client = {"name": "treadle", "version": client_version}
    return msgspec.json.encode({"protocolVersion": version, "capabilities": {}, "clientInfo": client})


def tools_list_params(cursor: str | None) -> bytes | None:
    """The parameters of one ``tools/list`` request; None for the first page."""
    return None if cursor is None else msgspec.json.encode({"cursor": cursor})


def encode_call(request_id: int, name: str, arguments_json: bytes) -> bytes:
    """The request ``tools/call`` as a line with its LF; ``arguments_json`` is compact JSON of an object.

    Joined, as it is what a broker mostly writes: to format numbers takes longer. Raises
    :class:`~treadle.errors.InvalidArgument` when ``name`` is not valid Unicode.
    """
    try:
        return b"".join((_ID, _encode(request_id), _CALLED, _encode(name), _ARGUMENTS, arguments_json, b"}}\n"))
    except UnicodeEncodeError:
        raise InvalidArgument("tool", "text that is not valid Unicode") from None


_ID: Final = b'{"jsonrpc":"2.0","id":'
_CALLED: Final = b',"method":"tools/call","params":{"name":'
_ARGUMENTS: Final = b',"arguments":'


# --- received ------------------------------------------------------------------------------------------------

_NONE: Final = Raw(b"")
_NULL: Final = Raw(b"null")
_NAME: Final = "a non-empty string"


class _Initialize(msgspec.Struct, gc=False):
    protocolVersion: Raw = _NONE  # noqa: N815
    capabilities: Raw = _NONE
    serverInfo: Raw = _NONE  # noqa: N815
    instructions: Raw = _NONE


class _Capabilities(msgspec.Struct, gc=False):
    tools: Raw = _NONE


class _ToolsCapability(msgspec.Struct, gc=False):
    listChanged: Raw = _NONE  # noqa: N815


class _ServerInfo(msgspec.Struct, gc=False):
    name: Raw = _NONE
    version: Raw = _NONE


class _Page(msgspec.Struct, gc=False):
    tools: Raw = _NONE
    nextCursor: Raw = _NONE  # noqa: N815


class _Entry(msgspec.Struct, gc=False):
    name: Raw = _NONE
    title: Raw = _NONE
    description: Raw = _NONE
    inputSchema: Raw = _NONE  # noqa: N815
    outputSchema: Raw = _NONE  # noqa: N815
    annotations: Raw = _NONE


class _RawResult(msgspec.Struct, gc=False):
    content: Raw = _NONE
    isError: Raw = _NONE  # noqa: N815
    structuredContent: Raw = _NONE  # noqa: N815


class _RawBlock(msgspec.Struct, gc=False):
    type: Raw = _NONE
    text: Raw = _NONE


class Block(TypedDict, total=False):
    """A content block of which the text alone is of interest."""

    type: Required[str]
    text: str


class TextResult(msgspec.Struct, gc=False):
    """The usual ``tools/call`` result, as it is decoded when text alone is to be kept whole. What does not decode
    to this is looked at field by field."""

    content: list[Block]
    isError: bool = False  # noqa: N815
    structuredContent: Raw = _NONE  # noqa: N815


_encode = msgspec.json.Encoder().encode
_decode_bool = msgspec.json.Decoder(bool).decode
_decode_string = msgspec.json.Decoder(str).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_initialize = msgspec.json.Decoder(_Initialize).decode
_decode_capabilities = msgspec.json.Decoder(_Capabilities).decode
_decode_tools_capability = msgspec.json.Decoder(_ToolsCapability).decode
_decode_server_info = msgspec.json.Decoder(_ServerInfo).decode
_decode_page = msgspec.json.Decoder(_Page).decode
_decode_entry = msgspec.json.Decoder(_Entry).decode
_decode_result = msgspec.json.Decoder(TextResult).decode
_decode_raw_result = msgspec.json.Decoder(_RawResult).decode
_decode_raw_block = msgspec.json.Decoder(_RawBlock).decode

_INITIALIZE: Final = "initialize result"
_LIST: Final = "tools/list result"
_CALL: Final = "tools/call result"


def decode_initialize_result(raw: bytes, supported: tuple[str, ...] = PROTOCOL_VERSIONS) -> InitializeResult:
    """What the ``result`` of ``initialize`` says; ``raw`` is well-formed JSON.

    Raises :class:`~treadle.errors.FieldFault` for a field of the wrong type (null is one),
    :class:`~treadle.errors.VersionUnsupported` for a version outside ``supported``, and
    :class:`~treadle.errors.ToolsNotDeclared`.
    """
    result = _decode_field(_decode_initialize, raw, _INITIALIZE, "result", "an object")
    version = _decode_version(result.protocolVersion, supported)
    tools = _NONE
    if result.capabilities:
        capabilities = _decode_field(
            _decode_capabilities, result.capabilities, _INITIALIZE, "capabilities", "an object"
        )
        tools = capabilities.tools
    server = _ServerInfo()
    if result.serverInfo:
        server = _decode_field(_decode_server_info, result.serverInfo, _INITIALIZE, "serverInfo", "an object")
    found = InitializeResult(
        version=version,
        list_changed=_decode_list_changed(tools) if tools else None,
        server_name=_label(server.name, "serverInfo.name"),
        server_version=_label(server.version, "serverInfo.version"),
        instructions=_optional_text(result.instructions, "instructions"),
    )
    if not tools:
        raise ToolsNotDeclared
    return found


def decode_tools_page(raw: bytes, first_index: int = 0) -> ToolsPage:
    """One page of a listing; its first entry has the index ``first_index`` over all pages.

    Raises :class:`~treadle.errors.FieldFault` for the first entry that is no object, has no non-empty string
    ``name`` or no ``inputSchema``, and for a ``nextCursor`` that is neither a string nor null. Titles and
    descriptions that are no strings are taken as absent: nothing relies on them.
    """
    page = _decode_field(_decode_page, raw, _LIST, "result", "an object")
    entries = _decode_field(_decode_items, page.tools, _LIST, "tools", "an array")
    cursor = None
    if page.nextCursor and page.nextCursor != _NULL:
        cursor = _decode_field(_decode_string, page.nextCursor, _LIST, "nextCursor", "a string or null")
    tools = tuple(_decode_tool(entry, f"tools[{index}]") for index, entry in enumerate(entries, first_index))
    return ToolsPage(tools, cursor or None)


def decode_call_result(raw: bytes, content: Content = "text") -> CallResult:
    """What the ``result`` of ``tools/call`` says. A text block is ``{type, text}``; any other is ``{type}``, or
    everything that the server sent when ``content`` is ``"all"``.

    Raises :class:`~treadle.errors.FieldFault` naming the field, and :class:`~treadle.errors.NotCarriable` with
    the path of what would cross and cannot.
    """
    if content == "text":
        try:
            found = reduced(_decode_result(raw))
        except msgspec.ValidationError:
            found = None
        if found is not None:
            return found
    return _decode_result_by_field(raw, content)


def reduced(result: TextResult) -> CallResult | None:
    """``result`` with its other blocks reduced to their kind; None when a text block has no text.

    Raises :class:`~treadle.errors.NotCarriable` for a structured result that cannot cross.
    """
    blocks: list[dict[str, Any]] = result.content  # type: ignore[assignment]  # plain dicts, as TypedDicts are
    for block in blocks:
        if block["type"] != "text":
            block.pop("text", None)
        elif "text" not in block:
            return None
    raw = result.structuredContent
    return CallResult(blocks, result.isError, _structured(raw)) if raw else CallResult(blocks, result.isError)


def _decode_result_by_field(raw: bytes, content: Content) -> CallResult:
    result = _decode_field(_decode_raw_result, raw, _CALL, "result", "an object")
    items = _decode_field(_decode_items, result.content, _CALL, "content", "an array")
    blocks = [_decode_block(item, index, content) for index, item in enumerate(items)]
    is_error = bool(result.isError) and _decode_field(_decode_bool, result.isError, _CALL, "isError", "a boolean")
    return CallResult(blocks, is_error, _structured(result.structuredContent))


def _decode_block(raw: Raw, index: int, content: Content) -> dict[str, Any]:
    block = _decode_field(_decode_raw_block, raw, _CALL, f"content[{index}]", "an object")
    kind = _decode_field(_decode_string, block.type, _CALL, f"content[{index}].type", "a string")
    if kind == "text":
        text = _decode_field(_decode_string, block.text, _CALL, f"content[{index}].text", "a string")
        return {"type": kind, "text": text}
    if content == "text":
        return {"type": kind}
    whole: dict[str, Any] = json_to_value(bytes(raw), BLOCK_DEPTH, at=("content", index))
    return whole


def _structured(raw: Raw) -> Any:
    return json_to_value(bytes(raw), at=("structuredContent",)) if raw else ABSENT


def _decode_version(raw: Raw, supported: tuple[str, ...]) -> str:
    try:
        version = _decode_string(raw)
    except msgspec.DecodeError:
        expected = f"a string, one of {', '.join(supported)}"
        raise FieldFault(_INITIALIZE, "protocolVersion", expected, _found(raw, show_value=True)) from None
    if version not in supported:
        raise VersionUnsupported(version, supported)
    return version


def _decode_list_changed(tools: Raw) -> bool | None:
    field = "capabilities.tools"
    capability = _decode_field(_decode_tools_capability, tools, _INITIALIZE, field, "an object")
    if not capability.listChanged:
        return None
    return _decode_field(_decode_bool, capability.listChanged, _INITIALIZE, f"{field}.listChanged", "a boolean")


def _label(raw: Raw, field: str) -> str | None:
    text = _optional_text(raw, field)
    return None if text is None else cap(sanitise(text), _LABEL_LIMIT)


def _optional_text(raw: Raw, field: str) -> str | None:
    return _decode_field(_decode_string, raw, _INITIALIZE, field, "a string") if raw else None


def _decode_tool(raw: Raw, field: str) -> Tool:
    entry = _decode_field(_decode_entry, raw, _LIST, field, "an object")
    name = _decode_field(_decode_string, entry.name, _LIST, f"{field}.name", _NAME)
    if not name:
        raise FieldFault(_LIST, f"{field}.name", _NAME, "an empty one")
    if not entry.inputSchema:
        raise FieldFault(_LIST, f"{field}.inputSchema", "a JSON schema", _found(entry.inputSchema))
    return Tool(
        name=name,
        title=_text_or_none(entry.title),
        description=_text_or_none(entry.description),
        input_schema=_compact(entry.inputSchema),
        output_schema=_compact_or_none(entry.outputSchema),
        annotations=_compact_or_none(entry.annotations),
    )


def _text_or_none(raw: Raw) -> str | None:
    try:
        return _decode_string(raw)
    except msgspec.DecodeError:
        return None


def _compact(raw: Raw) -> bytes:
    return msgspec.json.format(bytes(raw), indent=-1)


def _compact_or_none(raw: Raw) -> bytes | None:
    return _compact(raw) if raw and raw != _NULL else None


_T = TypeVar("_T")


def _decode_field(
    decode: Callable[[bytes | Raw], _T], raw: bytes | Raw, message: str, field: str, expected: str
) -> _T:
    """``raw`` decoded, or a fault that names ``field``; an absent field is empty and decodes to nothing."""
    try:
        return decode(raw)
    except msgspec.DecodeError:
        raise FieldFault(message, field, expected, _found(raw)) from None


_KINDS: Final = {
    ord('"'): "a string",
    ord("["): "an array",
    ord("{"): "an object",
    ord("n"): "null",
} | dict.fromkeys(b"tf", "a boolean")


def _found(raw: bytes | Raw, *, show_value: bool = False) -> str:
    """What kind of JSON value ``raw`` is, in words; a short number is shown when ``show_value`` asks for it."""
    text = bytes(raw)
    if not text:
        return "nothing"
    kind = _KINDS.get(text[0], "a number")
    return f"{kind} ({quote(text, 40)})" if show_value and kind == "a number" else kind
