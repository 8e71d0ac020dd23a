"""A listing over its pages (client page, section 3; group F of the hostile servers)."""

from __future__ import annotations

from typing import Any

import pytest
from strategies import written

from treadle.errors import CursorRepeated, DuplicateTool, FieldFault, ResultMalformed, TooManyPages
from treadle.wire.listing import MAX_BYTES, MAX_PAGES, MAX_TOOLS, Listing


def page(*names: str, cursor: str | None = None) -> bytes:
    tools: list[dict[str, Any]] = [{"name": name, "inputSchema": {}} for name in names]
    return written({"tools": tools} | ({} if cursor is None else {"nextCursor": cursor}))


def test_pages_are_followed_by_their_cursors_and_kept_in_order() -> None:
    listing = Listing()
    assert listing.add(page("b", "a", cursor="1")) == "1"
    assert listing.add(page(cursor="2")) == "2"
    assert listing.add(page("c")) is None
    assert [tool.name for tool in listing.tools] == ["b", "a", "c"]


def test_a_name_listed_twice_names_both_indexes_also_over_pages() -> None:
    with pytest.raises(DuplicateTool) as one_page:
        Listing().add(page("a", "b", "a"))
    assert one_page.value == DuplicateTool("a", 0, 2)
    listing = Listing()
    listing.add(page("a", "b", cursor="1"))
    with pytest.raises(DuplicateTool) as two_pages:
        listing.add(page("c", "b"))
    assert two_pages.value == DuplicateTool("b", 1, 3)


def test_a_listing_has_ten_thousand_tools_at_the_most() -> None:
    assert MAX_TOOLS == 10_000
    names = [f"t{number}" for number in range(MAX_TOOLS)]
    full = Listing()
    assert full.add(page(*names, cursor="1")) == "1"
    assert full.add(page()) is None
    listing = Listing()
    listing.add(page(*names, cursor="1"))
    with pytest.raises(ResultMalformed, match="it has 10002 tools or more, the limit is 10000"):
        listing.add(page("one", "more"))


def test_names_that_differ_in_case_only_are_different() -> None:
    listing = Listing()
    assert listing.add(page("tool", "Tool")) is None
    assert len(listing.tools) == 2


def test_the_index_of_a_bad_entry_counts_over_all_pages() -> None:
    listing = Listing()
    listing.add(page("a", "b", cursor="1"))
    listing.add(page("c", cursor="2"))
    with pytest.raises(FieldFault, match=r"tools\[4\]\.name"):
        listing.add(b'{"tools":[{"name":"d","inputSchema":{}},{"inputSchema":{}}]}')


def test_a_cursor_that_was_followed_already_is_a_fault_at_once() -> None:
    listing = Listing()
    listing.add(page(cursor="1"))
    listing.add(page(cursor="2"))
    with pytest.raises(CursorRepeated) as raised:
        listing.add(page(cursor="1"))
    assert raised.value == CursorRepeated("1", 3)


def test_sixty_four_pages_are_the_most() -> None:
    assert MAX_PAGES == 64
    listing = Listing()
    for number in range(63):
        assert listing.add(page(cursor=str(number)))
    with pytest.raises(TooManyPages) as raised:
        listing.add(page(cursor="63"))
    assert raised.value == TooManyPages(64)


def test_a_listing_that_ends_on_page_sixty_four_is_whole() -> None:
    listing = Listing()
    for number in range(63):
        listing.add(page(f"t{number}", cursor=str(number)))
    assert listing.add(page("last", cursor="")) is None
    assert len(listing.tools) == 64


def test_the_pages_together_are_bounded() -> None:
    listing = Listing()
    filler = b'{"tools":[],"x":"%b","nextCursor":"%d"}'
    for number in range(4):
        listing.add(filler % (b"x" * (MAX_BYTES // 4 - 64), number))
    with pytest.raises(ResultMalformed, match=f"the limit is {MAX_BYTES}"):
        listing.add(filler % (b"x" * 1024, 5))
