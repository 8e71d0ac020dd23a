"""Every vector of tests/vectors/frames.json, through the codec, whatever the chunking."""

import json
from pathlib import Path
from typing import Any

import pytest

from treadle_client.frames import Frame, FrameReader, encode

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "frames.json").read_text())["vectors"]


def value(written: Any, nested: int) -> Any:
    """A value as the vectors write it."""
    if isinstance(written, dict):
        if written.keys() == {"bin"}:
            return bytes.fromhex(written["bin"])
        return {key: value(item, nested) for key, item in written.items()}
    if isinstance(written, list):
        return [value(item, nested) for item in written]
    if nested and written == f"<nested {nested}>":
        arrays: list[Any] = []
        for _ in range(nested - 1):
            arrays = [arrays]
        return arrays
    return written


def expected(vector: dict[str, Any]) -> list[Frame]:
    return [
        Frame(
            frame["id"],
            frame["kind"],
            value(frame["body"], vector.get("nested", 0)),
            tuple(frame["invalid"]) if "invalid" in frame else None,
        )
        for frame in vector["frames"]
    ]


@pytest.mark.parametrize("size", [0, 1, 7], ids=["whole", "byte by byte", "by seven"])
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_vector_reads_as_it_says(vector: dict[str, Any], size: int) -> None:
    data = bytes.fromhex(vector["hex"])
    reader = FrameReader()
    chunks = [data[i : i + size] for i in range(0, len(data), size)] if size else [data]
    frames = [frame for chunk in chunks for frame in reader.feed(chunk)]
    assert frames == expected(vector)
    fault = reader.fault and {"code": reader.fault.code, "id": reader.fault.id}
    assert fault == vector.get("fault")
    assert bool(reader.pending) == vector.get("pending", False)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_good_frame_is_read_again_from_its_own_encoding(vector: dict[str, Any]) -> None:
    for frame in expected(vector):
        if frame.invalid is None:
            assert FrameReader().feed(encode(frame.id, frame.kind, frame.body)) == [frame]


def test_the_names_of_the_vectors_are_unique() -> None:
    names = [vector["name"] for vector in VECTORS]
    assert len(set(names)) == len(names) > 80
