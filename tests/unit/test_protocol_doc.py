"""docs/protocol.md says what the codec does: every byte of its examples is decoded, every annotation compared."""

import json
import re
from pathlib import Path
from typing import Any

import msgpack
import pytest

from treadle.decoding import MOST_CONTAINERS, MOST_VALUES
from treadle.listener import Bounds
from treadle_client import errors
from treadle_client.frames import MAX_DEPTH, MAX_FRAME, FrameReader, encode

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
EXAMPLES = re.findall(r"```hex\n(.*?)```\n\n```json\n(.*?)```", PAGE, re.DOTALL)
BAD_EXAMPLES = re.findall(r"```hex-bad\n(.*?)```\n\n```json\n(.*?)```", PAGE, re.DOTALL)

REQUESTS = {
    "list",
    "call",
    "status",
    "generate",
    "logs",
    "restart",
    "stop",
    "start",
    "reload",
    "shutdown",
    "cap_call",
}
KINDS = REQUESTS | {"hello", "heartbeat", "cancel", "result", "cap_result", "error"}


def lines(block: str) -> list[tuple[bytes, str]]:
    """The bytes and the annotation of each line of a block."""
    split = [line.split(";", 1) for line in block.splitlines()]
    return [(bytes.fromhex(data), note.strip()) for data, note in split]


def written(value: Any) -> Any:
    """A value as the page writes it in JSON."""
    if isinstance(value, bytes):
        return {"bin": value.hex()}
    if isinstance(value, dict):
        return {key: written(item) for key, item in value.items()}
    return [written(item) for item in value] if isinstance(value, list) else value


def annotation(data: bytes) -> str:
    """What one line of a payload means: a key and a value, or a value; of a container only its head is there."""
    said = []
    while data:
        lead = data[0]
        if 0x80 <= lead <= 0x9F:
            said.append(f"{'map' if lead < 0x90 else 'array'} of {lead & 0x0F}")
            data = data[1:]
            continue
        unpacker = msgpack.Unpacker()
        unpacker.feed(data)
        value = unpacker.unpack()
        said.append(f"bin {value.hex(' ')}" if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False))
        data = data[unpacker.tell() :]
    return ": ".join(said)


def test_every_hex_block_has_its_meaning_below_it() -> None:
    assert len(EXAMPLES) == len(re.findall(r"```hex\n", PAGE)) >= len(KINDS)
    assert len(BAD_EXAMPLES) == len(re.findall(r"```hex-bad\n", PAGE)) >= 3


@pytest.mark.parametrize(("block", "meaning"), EXAMPLES)
def test_an_example_decodes_to_the_json_below_it_and_encodes_to_its_bytes(block: str, meaning: str) -> None:
    data = b"".join(part for part, _ in lines(block))
    (frame,) = FrameReader().feed(data)
    shown = {"v": 1, "id": frame.id, "kind": frame.kind, "body": written(frame.body)}
    assert json.dumps(shown, ensure_ascii=False) == meaning.strip()
    assert encode(frame.id, frame.kind, frame.body) == data


@pytest.mark.parametrize("block", [block for block, _ in EXAMPLES + BAD_EXAMPLES])
def test_each_line_of_an_example_means_what_its_annotation_says(block: str) -> None:
    (prefix, length), *rest = lines(block)
    if rest:
        assert length == f"length {int.from_bytes(prefix, 'big')}"
    assert [annotation(data) for data, _ in rest] == [note for _, note in rest]


@pytest.mark.parametrize(("block", "meaning"), BAD_EXAMPLES)
def test_a_bad_example_ends_in_the_fault_below_it(block: str, meaning: str) -> None:
    reader = FrameReader()
    assert reader.feed(b"".join(part for part, _ in lines(block))) == []
    assert reader.fault is not None
    assert {"code": reader.fault.code, "id": reader.fault.id} == json.loads(meaning)


def test_every_kind_has_an_example() -> None:
    assert {json.loads(meaning)["kind"] for _, meaning in EXAMPLES} == KINDS


def test_the_limits_are_those_of_the_codec() -> None:
    assert f"{MAX_FRAME:_} bytes".replace("_", " ") in PAGE
    assert f"at most {MAX_DEPTH} levels" in PAGE


def test_the_bounds_are_those_of_the_listener() -> None:
    bounds = Bounds()
    assert f"The `hello` must come within {bounds.hello_s:g} s" in PAGE
    assert f"must come within {bounds.stall_s:g} s" in PAGE.replace("\n  ", " ")
    assert (MOST_CONTAINERS, MOST_VALUES) == (100_000, 1_000_000)
    assert "at most 100 000 arrays and maps, and a million values" in PAGE


def test_every_code_that_the_client_knows_is_explained() -> None:
    explained = set(re.findall(r"^\| `([a-z_]+)(?:<number>)?` \|", PAGE, re.MULTILINE))
    assert set(errors._CLASSES) | {"jsonrpc_", "unsupported_cap"} <= explained


def test_every_link_of_the_page_leads_to_a_heading() -> None:
    headings = re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= anchors
