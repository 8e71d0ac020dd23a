"""The JSON-RPC 2.0 envelope: strict about itself, tolerant of its content (floor 0, pure).

The rules are those of the client page, section 1. Payloads cross as raw JSON; ids, duplicate keys, nesting and
text that is no Unicode are settled here, so that no layer above has to ask again.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import Raw

from treadle.errors import BadMessage, Malformed, NotCarriable
from treadle.text import quote
from treadle.wire.nesting import MAX_DEPTH, MAX_VALUES, too_deep, too_many_values
from treadle.wire.scan import NotJson, members

Id = int | str | bytes
"""The id of an answer: an integer, a string, or the digits of an integer too long for Python to convert
(4300 digits), which is nobody's id."""


class Response(msgspec.Struct, frozen=True, gc=False):
    """An answer with a result: raw JSON. An answer whose payload (a result, or an error's content) cannot be
    represented carries the reason in its place."""

    id: Id
    result: bytes | NotCarriable


class ErrorResponse(msgspec.Struct, frozen=True, gc=False):
    """An answer with an error. ``data`` is raw JSON, None when absent."""

    id: Id
    code: int
    message: str
    data: bytes | None


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request from the server. ``id_raw`` is its id as raw JSON, to be echoed in its own type."""

    id_raw: bytes
    method: str
    params: bytes | NotCarriable | None


class Notification(msgspec.Struct, frozen=True, gc=False):
    """A notification from the server; its parameters are of no interest to this client."""

    method: str


Message = Response | ErrorResponse | Request | Notification

_ABSENT: Final = Raw(b"")


class _Answer(msgspec.Struct, gc=False):
    """The usual line. Anything that does not decode to this is looked at by the general way below."""

    jsonrpc: Literal["2.0"]
    id: int
    result: Raw
    method: Raw = _ABSENT
    error: Raw = _ABSENT


class _Envelope(msgspec.Struct, gc=False):
    """Every field raw: that tells absent from null, and an integer from ``1.0`` and ``true``."""

    jsonrpc: Raw = _ABSENT
    id: Raw = _ABSENT
    method: Raw = _ABSENT
    params: Raw = _ABSENT
    result: Raw = _ABSENT
    error: Raw = _ABSENT


class _Error(msgspec.Struct, gc=False):
    code: Raw = _ABSENT
    message: Raw = _ABSENT
    data: Raw = _ABSENT


_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_error = msgspec.json.Decoder(_Error).decode
_decode_string = msgspec.json.Decoder(str).decode
_check_syntax = msgspec.json.Decoder(Raw).decode

_VERSION: Final = Raw(b'"2.0"')
_GOOD_ID: Final = "an id that is an integer or a string"
_GOOD_ERROR: Final = "an error object with an integer code and a string message"
_CONTENT_LENGTH: Final = b"content-length:"
_INTEGER: Final = re.compile(rb"-?[0-9]+")
_MAX_DIGITS: Final = 4300
_HIGH: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE_SURROGATE: Final = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))
_MARKERS: Final = tuple(rb"\u%b" % digits for digits in (b"fffd", b"FFFD", b"Fffd", b"fFfd", b"ffFd", b"fffD"))


def decode(line: bytes) -> Message:
    """The message that ``line`` (any bytes, without its LF) holds.

    Raises :class:`~treadle.errors.Malformed` when the line is not one well-formed UTF-8 JSON document, and
    :class:`~treadle.errors.BadMessage` when it is JSON but no JSON-RPC 2.0 message; nothing else. Of a
    duplicate key the last one counts; unknown keys are ignored.
    """
    if not line.isascii():
        _check_utf8(line)
    if too_deep(line):
        return _decode_too_deep(line)
    if len(line) > MAX_VALUES and too_many_values(line):
        return _decode_any(line, too_many=True)
    try:
        answer = _decode_answer(line)
        if not (answer.method or answer.error):
            return Response(answer.id, bytes(answer.result))
    except msgspec.DecodeError:
        pass
    return _decode_any(line)


def encode_request(request_id: int, method: str, params: bytes | None = None) -> bytes:
    """One request as a line with its LF. ``params`` is compact JSON, or None for no ``params`` at all."""
    if params is None:
        return b'{"jsonrpc":"2.0","id":%d,"method":%b}\n' % (request_id, msgspec.json.encode(method))
    return b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}\n' % (
        request_id,
        msgspec.json.encode(method),
        params,
    )


def encode_notification(method: str) -> bytes:
    """One notification without parameters as a line with its LF."""
    return b'{"jsonrpc":"2.0","method":%b}\n' % msgspec.json.encode(method)


def encode_error(id_raw: bytes, code: int, message: str) -> bytes:
    """The error answer to the request whose raw id is ``id_raw``, as a line with its LF."""
    error = msgspec.json.encode({"code": code, "message": message})
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (id_raw, error)


def encode_result(id_raw: bytes, result: bytes) -> bytes:
    """The answer to the request whose raw id is ``id_raw``; ``result`` is compact JSON. A line with its LF."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id_raw, result)


def _check_utf8(line: bytes) -> None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 (byte {error.start})", quote(line)) from None


def _decode_too_deep(line: bytes) -> Message:
    """Decode a line past the limit: each value that is too deep is taken out, and its name kept."""
    try:
        found = members(line)
    except NotJson as error:
        raise Malformed(str(error), quote(line)) from None
    if found is None:
        raise _not_an_object(line)
    too_deep_keys: set[str] = set()
    shallow = []
    done = 0
    for member in found:
        key = _decode_string(_LONE_SURROGATE.sub(rb"\\ufffd", member.key))
        too_deep_keys.discard(key)
        if member.depth > MAX_DEPTH:
            too_deep_keys.add(key)
            shallow += [line[done : member.start], b"null"]
            done = member.end
    shallow.append(line[done:])
    return _decode_any(b"".join(shallow), too_deep_keys)


class _Line(NamedTuple):
    """A line whose envelope was read, and what is known of the payloads in it."""

    text: bytes
    envelope: _Envelope
    too_deep_keys: Collection[str]
    marker: bytes
    """What stands in ``text`` in place of a lone surrogate's escape; empty when there was none."""
    too_many: bool
    """Whether the line holds more values than may be decoded."""

    def payload(self, key: str, raw: Raw) -> bytes | NotCarriable:
        """The bytes of the member ``key``, or why they cannot be carried."""
        if key in self.too_deep_keys:
            return NotCarriable(f"nesting past {MAX_DEPTH} levels")
        if self.too_many:
            return NotCarriable(f"more than {MAX_VALUES} values")
        value = bytes(raw)
        return NotCarriable("an escaped lone surrogate") if self.marker and self.marker in value else value

    def bad(self, expected: str) -> BadMessage:
        return BadMessage(expected, quote(self.text))


def _decode_any(text: bytes, too_deep_keys: Collection[str] = (), too_many: bool = False) -> Message:
    """Decode any line of bounded depth; ``too_deep_keys`` are the keys whose value was taken out of it. With
    ``too_many`` it holds more values than a payload may, and only its envelope is looked at."""
    marker = b""
    try:
        try:
            envelope = _object(text)
        except msgspec.DecodeError:
            repaired, marker = _without_lone_surrogates(text)
            envelope = _object(repaired)
    except msgspec.DecodeError as error:
        raise Malformed(_hint(text) or str(error), quote(text)) from None
    if envelope is None:
        raise _not_an_object(text)
    line = _Line(text, envelope, too_deep_keys, marker, too_many)
    if envelope.jsonrpc != _VERSION and _string(envelope.jsonrpc) != "2.0":
        raise line.bad('"jsonrpc": "2.0"')
    return _from_server(line) if envelope.method else _answer(line)


def _from_server(line: _Line) -> Request | Notification:
    envelope = line.envelope
    if envelope.result or envelope.error:
        raise line.bad("no result or error beside a method")
    method = _string(envelope.method)
    if method is None:
        raise line.bad("a method that is a string")
    if not envelope.id:
        return Notification(method)
    id_raw = line.payload("id", envelope.id)
    if isinstance(id_raw, NotCarriable) or _id(envelope.id) is None:
        raise line.bad(_GOOD_ID)
    return Request(id_raw, method, line.payload("params", envelope.params) if envelope.params else None)


def _answer(line: _Line) -> Response | ErrorResponse:
    envelope = line.envelope
    answers = _id(envelope.id)
    if answers is None:
        raise line.bad(_GOOD_ID)
    if bool(envelope.result) == bool(envelope.error):
        raise line.bad("exactly one of result and error")
    if envelope.result:
        return Response(answers, line.payload("result", envelope.result))
    payload = line.payload("error", envelope.error)
    if "error" in line.too_deep_keys:
        return Response(answers, payload)
    try:
        error = _decode_error(envelope.error)
    except msgspec.ValidationError:
        raise line.bad(_GOOD_ERROR) from None
    code, message = bytes(error.code), _string(error.message)
    if message is None or not _INTEGER.fullmatch(code):
        raise line.bad(_GOOD_ERROR)
    if isinstance(payload, NotCarriable):
        return Response(answers, payload)
    if len(code) > _MAX_DIGITS:
        return Response(answers, NotCarriable(f"an integer of more than {_MAX_DIGITS} digits", "$.code"))
    return ErrorResponse(answers, int(code), message, bytes(error.data) if error.data else None)


def _object(text: bytes) -> _Envelope | None:
    """The envelope of ``text``, None when it is JSON but no object. Raises DecodeError when it is no JSON."""
    try:
        return _decode_envelope(text)
    except msgspec.ValidationError:
        # The wrong type at the top is reported before the rest of the line is looked at.
        _check_syntax(text)
        return None


def _without_lone_surrogates(text: bytes) -> tuple[bytes, bytes]:
    """``text`` with a marker, returned beside it, in place of each escape of a lone surrogate.

    The marker is an escape that ``text`` does not hold, so that it tells which values were touched. (Should a
    text hold all candidates, the first serves: it then tells too much, never too little.)
    """
    marker = next((each for each in _MARKERS if each not in text), _MARKERS[0])
    # Escaped backslashes are put out of sight, so that every backslash left begins an escape. No NUL can
    # stand in JSON text itself.
    hidden = text.replace(rb"\\", b"\0\0")
    repaired = _LONE_SURROGATE.sub(marker.replace(b"\\", rb"\\"), hidden).replace(b"\0\0", rb"\\")
    return repaired, marker


def _id(raw: Raw) -> Id | None:
    digits = bytes(raw)
    if not _INTEGER.fullmatch(digits):
        return _string(raw)
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


def _string(raw: Raw) -> str | None:
    """The text of a JSON string, None for another value and for none."""
    try:
        return _decode_string(raw)
    except msgspec.DecodeError:
        return None


def _not_an_object(line: bytes) -> BadMessage:
    is_batch = line.lstrip().startswith(b"[")
    return BadMessage("one JSON-RPC object" + (", not a batch" if is_batch else ""), quote(line))


def _hint(line: bytes) -> str | None:
    """What a line that is no JSON was probably meant to be."""
    if line.startswith(codecs.BOM_UTF8):
        return "it begins with a byte order mark"
    if line[: len(_CONTENT_LENGTH)].lower() == _CONTENT_LENGTH:
        return "Content-Length framing; over stdio each message is one line of JSON and nothing else"
    return None
