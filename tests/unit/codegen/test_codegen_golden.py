"""The modules of three real servers, byte for byte."""

import pytest

from unit.codegen.golden import FOLDER, outputs


@pytest.mark.parametrize("name", sorted(outputs()))
def test_a_real_listing_regenerates_its_golden_file(name: str) -> None:
    assert outputs()[name] == (FOLDER / name).read_text()


def test_every_golden_file_is_still_generated() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(outputs())
