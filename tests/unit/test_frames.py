"""The frame codec: what goes in comes out, whatever the chunking, at a linear cost."""

import threading
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import effort
from treadle_client import frames
from treadle_client.frames import MAX_DEPTH, MAX_FRAME, Frame, FrameReader, FrameTooLarge, FrameUnencodable, encode

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text("abcdé ", max_size=5), inner, max_size=5),
    max_leaves=20,
)
bodies = st.dictionaries(st.text("abcd", max_size=4), values, max_size=5)
some_frames = st.builds(Frame, st.integers(0, 2**64 - 1), st.text("abc_", max_size=8), bodies)
# Anything that msgpack can hold, byte strings, extensions and odd keys among it.
foreign = st.recursive(
    scalars | st.binary(max_size=5) | st.builds(msgpack.ExtType, st.integers(0, 9), st.binary(max_size=5)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


# --- reading -----------------------------------------------------------------------------------------


@given(st.lists(some_frames, max_size=3), st.lists(st.integers(1, 40), max_size=30))
def test_what_is_encoded_is_read_whatever_the_chunking(sent: list[Frame], sizes: list[int]) -> None:
    data = b"".join(encode(frame.id, frame.kind, frame.body) for frame in sent)
    reader = FrameReader()
    read: list[Frame] = []
    for size in sizes:
        read += reader.feed(data[:size])
        data = data[size:]
    assert read + reader.feed(data) == sent
    assert (reader.fault, reader.pending) == (None, 0)


@given(st.binary(max_size=300))
def test_any_bytes_end_in_frames_or_one_fault_and_never_in_an_exception(data: bytes) -> None:
    reader = FrameReader()
    for byte in framed(data):
        reader.feed(bytes([byte]))
    assert reader.feed(b"") == []


@given(st.integers(0, 2**64 - 1), foreign)
def test_a_call_is_read_with_its_id_whatever_its_arguments_hold(id_: int, argument: Any) -> None:
    try:
        payload = msgpack.packb(
            {"v": 1, "id": id_, "kind": "call", "body": {"server": "s", "arguments": {"a": argument}}}
        )
    except OverflowError:  # a key outside 64 bits
        return
    (frame,) = FrameReader().feed(framed(payload))
    assert (frame.id, frame.body["server"]) == (id_, "s")
    if frame.invalid is None:
        assert frame.body["arguments"] == {"a": argument}
    else:
        assert frame.invalid[0].startswith("$.a")
        assert frame.body["arguments"] == {}


@given(foreign)
def test_the_exact_path_and_the_fast_path_agree_on_what_is_carried(argument: Any) -> None:
    def is_carried(value: Any) -> bool:
        if type(value) is dict:
            return all(type(key) is str and is_carried(item) for key, item in value.items())
        if type(value) is list:
            return all(is_carried(item) for item in value)
        return value is None or type(value) in (bool, int, float, str)

    try:
        payload = msgpack.packb({"v": 1, "id": 1, "kind": "call", "body": {"arguments": {"a": argument}}})
    except OverflowError:
        return
    (frame,) = FrameReader().feed(framed(payload))
    assert (frame.invalid is None) == is_carried(argument)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_can_be_fed(kind: Callable[[bytes], Any]) -> None:
    data = encode(1, "status", {"server": "demo"})
    reader = FrameReader()
    assert reader.feed(kind(data[:7])) == []
    assert reader.feed(kind(data[7:])) == [Frame(1, "status", {"server": "demo"})]


def test_a_fed_buffer_may_be_reused_at_once() -> None:
    data = bytearray(encode(1, "status", {"server": "demo"}))
    reader = FrameReader()
    half = bytearray(data[:9])
    reader.feed(half)
    half[:] = b"\0" * 9
    assert reader.feed(data[9:]) == [Frame(1, "status", {"server": "demo"})]


def test_a_frame_of_exactly_the_limit_is_read_and_one_byte_more_is_refused_by_its_prefix() -> None:
    room = MAX_FRAME - len(encode(1, "x", {"a": "y" * 70_000})) + 4
    data = encode(1, "x", {"a": "y" * (70_000 + room)})
    assert len(data) == 4 + MAX_FRAME
    (frame,) = FrameReader().feed(data)
    assert len(frame.body["a"]) == 70_000 + room
    reader = FrameReader()
    assert reader.feed((MAX_FRAME + 1).to_bytes(4, "big")) == []
    assert reader.fault is not None
    assert str(MAX_FRAME) in reader.fault.msg


def test_a_reader_can_have_a_smaller_limit() -> None:
    reader = FrameReader(limit=40)
    assert len(reader.feed(encode(1, "x", {}))) == 1
    reader.feed(encode(2, "x", {"a": "y" * 40}))
    assert reader.fault is not None


def test_the_reader_says_how_many_bytes_are_missing() -> None:
    data = encode(1, "x", {"a": "y" * 1000})
    reader = FrameReader()
    assert reader.missing == 4
    reader.feed(data[:3])
    assert reader.missing == 1
    reader.feed(data[3:10])
    assert reader.missing == len(data) - 10
    reader.feed(data[10:] + data[:4])
    assert reader.missing == len(data) - 4


def test_what_is_wrong_with_a_frame_is_said_with_its_place() -> None:
    for payload, said in [
        (b"\xc1", "0xc1"),
        (b"\x90", "an array, not a map"),
        (msgpack.packb({"v": 1, "id": 1, "kind": "x", "body": {"a": [b""]}}), "a byte string at $.body.a[0]"),
        (msgpack.packb({"v": 1, "id": 1, "kind": "x", "body": {"arguments": b""}}), "at $.body.arguments of"),
        (msgpack.packb({"v": 1, "id": 1, "kind": "x"}), "no key body"),
        (msgpack.packb({"v": 1, "id": 1, "kind": "x", "body": {}, "mood": 1}), 'unknown key "mood"'),
        (msgpack.packb({"v": 3, "id": 1, "kind": "x", "body": {}}), "version 3"),
        (msgpack.packb({"v": 1, "id": 1, "kind": "x", "body": {"a": nested(300)}}), "past 256 levels"),
    ]:
        reader = FrameReader()
        reader.feed(framed(payload))
        assert reader.fault is not None
        assert said in reader.fault.msg


def test_a_hostile_key_makes_no_long_or_unprintable_message() -> None:
    keys = ["\x1b[31m" + "é" * 10_000 + '"'] * 100
    value: Any = b""
    for key in keys:
        value = {key: value}
    payload = msgpack.packb({"v": 1, "id": 1, "kind": "call", "body": {"arguments": value}})
    (frame,) = FrameReader().feed(framed(payload))
    assert frame.invalid is not None
    path = frame.invalid[0]
    assert len(path) < 20_000
    assert path.isascii()
    assert path.isprintable()


# --- cost --------------------------------------------------------------------------------------------


def test_a_large_frame_in_small_chunks_costs_its_size() -> None:
    data = encode(1, "x", {"a": "y" * 1_000_000})
    reader = FrameReader()
    read: list[Frame] = []
    chunks = [data[i : i + 4096] for i in range(0, len(data), 4096)]
    # Its bytes are copied into the buffer, decoded and made text: a copy a chunk of what is pending would be 120.
    assert effort.moved(lambda chunk=chunk: read.extend(reader.feed(chunk)) for chunk in chunks) < 5 * len(data)
    assert len(read) == 1


class Sliced(bytes):
    """Bytes that count what is copied out of them."""

    copied = 0

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        self.copied += len(part) if isinstance(part, bytes) else 0
        return part


def test_many_frames_in_one_chunk_are_each_copied_once() -> None:
    chunk = Sliced(encode(1, "x", {}) * 1000)
    assert len(FrameReader().feed(chunk)) == 1000
    assert 0 < chunk.copied <= len(chunk)


def test_finding_what_is_wrong_costs_the_size_of_the_frame() -> None:
    def find(size: int) -> None:
        arguments = {"a": [{"k": n, "v": [1.5, "x"]} for n in range(size)], "b": b""}
        payload = msgpack.packb({"v": 1, "id": 1, "kind": "call", "body": {"arguments": arguments}})
        (frame,) = FrameReader().feed(framed(payload))
        assert frame.invalid == ("$.b", "a byte string")

    assert effort.lines(lambda: find(1_000)) < 4.5 * effort.lines(lambda: find(250))


def test_the_memory_of_a_large_frame_is_given_back() -> None:
    tracemalloc.start()
    try:
        data = encode(1, "x", {"a": "y" * 8_000_000})
        assert tracemalloc.get_traced_memory()[0] < 10_000_000  # the frame, and no second buffer
        reader = FrameReader()
        for i in range(0, len(data), 65536):
            reader.feed(data[i : i + 65536])
        del data
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


# --- writing -----------------------------------------------------------------------------------------


def test_a_frame_is_a_length_and_a_map_of_four_keys() -> None:
    data = encode(5, "status", {"server": "demo"})
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert msgpack.unpackb(data[4:]) == {"v": 1, "id": 5, "kind": "status", "body": {"server": "demo"}}


def test_a_frame_past_the_limit_is_refused_with_both_sizes() -> None:
    with pytest.raises(FrameTooLarge) as caught:
        encode(1, "x", {"a": "y" * MAX_FRAME})
    assert caught.value.limit == MAX_FRAME
    assert caught.value.size > MAX_FRAME
    assert len(encode(1, "x", {})) < 40


@pytest.mark.parametrize(
    ("body", "path", "found"),
    [
        ({"a": [1, {"b": 2**64}]}, "$.a[1].b", "an integer outside 64 bits"),
        ({"a": -(2**63) - 1}, "$.a", "an integer outside 64 bits"),
        ({"a": {"b c": {1, 2}}}, '$.a["b c"]', "a value of type set"),
        ({"a": "\ud800"}, "$.a", "text that is not valid Unicode"),
        ({"a": {"\udc00": 1}}, "$.a", "a map key that is text that is not valid Unicode"),
        ({"a": {frozenset(): 1}}, "$.a", "a map key that is a value of type frozenset"),
        ({"a": nested(255)}, None, "nesting past 256 levels"),
        ({"a": nested(2000)}, None, "nesting past 256 levels"),
    ],
)
def test_what_no_frame_can_hold_is_refused_with_its_path(
    body: dict[str, Any], path: str | None, found: str
) -> None:
    with pytest.raises(FrameUnencodable) as caught:
        encode(1, "x", body)
    assert caught.value.found == found
    assert caught.value.path == path or (path is None and caught.value.path.startswith("$.a[0][0]"))


def test_a_body_that_contains_itself_is_refused() -> None:
    body: dict[str, Any] = {}
    body["again"] = body
    with pytest.raises(FrameUnencodable, match="nesting"):
        encode(1, "x", body)


@pytest.mark.parametrize("id_", [-1, 2**64])
def test_an_id_outside_u64_is_refused(id_: int) -> None:
    with pytest.raises(FrameUnencodable):
        encode(id_, "x", {"a": "y" * 300})
    with pytest.raises(FrameUnencodable):
        encode(id_, "x", {})


def test_tuples_and_subclasses_are_written_as_what_they_stand_for() -> None:
    class Text(str):
        __slots__ = ()

    body = {"a": (1, (2, 3)), "b": OrderedDict(x=1), "c": Text("t"), "pad": "y" * 300}
    (frame,) = FrameReader().feed(encode(1, "x", body))
    assert frame.body == {"a": [1, [2, 3]], "b": {"x": 1}, "c": "t", "pad": "y" * 300}


def test_a_deep_tuple_is_no_way_around_the_depth_limit() -> None:
    value: Any = ()
    for _ in range(MAX_DEPTH):
        value = (value,)
    with pytest.raises(FrameUnencodable, match="nesting"):
        encode(1, "x", {"a": value})


def test_a_value_whose_own_code_encodes_another_frame_disturbs_nothing() -> None:
    class Meddling(dict[str, Any]):
        def items(self) -> Any:
            assert FrameReader().feed(encode(9, "inner", {"x": [1, 2]}))[0].id == 9
            return super().items()

    (frame,) = FrameReader().feed(encode(1, "outer", {"a": ["x", Meddling(b=1)]}))
    assert frame == Frame(1, "outer", {"a": ["x", {"b": 1}]})


def test_threads_can_encode_at_the_same_time() -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        for size in range(300):
            body = {"n": number, "s": "x" * size, "t": (number,) if size % 7 == 0 else None}
            (frame,) = FrameReader().feed(encode(size, "x", body))
            if (frame.body["n"], len(frame.body["s"])) != (number, size):
                wrong.append(frame)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@given(bodies)
def test_the_look_at_a_short_payload_and_the_walk_of_a_body_agree(body: dict[str, Any]) -> None:
    padded = {**body, "pad": "y" * 300}
    assert frames.is_plain(padded)
    assert FrameReader().feed(encode(1, "x", body)) == [Frame(1, "x", body)]
    assert FrameReader().feed(encode(1, "x", padded)) == [Frame(1, "x", padded)]


@given(some_frames)
def test_a_body_that_is_vouched_for_gives_the_same_bytes(frame: Frame) -> None:
    assert encode(frame.id, frame.kind, frame.body, plain=True) == encode(frame.id, frame.kind, frame.body)
