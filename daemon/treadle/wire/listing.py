"""One listing over its pages: all of it or nothing (floor 0, pure; client page, section 3)."""

from __future__ import annotations

from typing import Final

from treadle.errors import CursorRepeated, DuplicateTool, ResultMalformed, TooManyPages
from treadle.wire.lines import MAX_LINE
from treadle.wire.messages import Tool, decode_tools_page

MAX_PAGES: Final = 64
"""The most requests that one listing makes."""

MAX_TOOLS: Final = 10_000
"""The most tools that one listing may have; the client page sets no bound. Far more than any server has, and few
enough that a status does not notice them."""

MAX_BYTES: Final = 4 * MAX_LINE
"""The most bytes that the pages of one listing may have together."""


class Listing:
    """Gathers pages. After a fault it must not be used again."""

    __slots__ = ("_bytes", "_cursors", "_indexes", "_tools", "pages")

    def __init__(self) -> None:
        self.pages = 0
        self._bytes = 0
        self._tools: list[Tool] = []
        self._indexes: dict[str, int] = {}
        self._cursors: set[str] = set()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The entries of the pages so far, in the server's order."""
        return tuple(self._tools)

    def add(self, raw: bytes) -> str | None:
        """Take the ``result`` of one ``tools/list``; returns the cursor to ask for next, None at the end.

        Raises :class:`~treadle.errors.FieldFault`, :class:`~treadle.errors.DuplicateTool` (indexes count over
        all pages), :class:`~treadle.errors.CursorRepeated`, :class:`~treadle.errors.TooManyPages`, and
        :class:`~treadle.errors.ResultMalformed` when the pages together pass :data:`MAX_BYTES` or
        :data:`MAX_TOOLS`.
        """
        self.pages += 1
        self._bytes += len(raw)
        if self._bytes > MAX_BYTES:
            raise ResultMalformed(f"tools/list: its pages are {self._bytes} bytes, the limit is {MAX_BYTES}")
        page = decode_tools_page(raw, len(self._tools))
        count = len(self._tools) + len(page.tools)
        if count > MAX_TOOLS:
            raise ResultMalformed(f"tools/list: it has {count} tools or more, the limit is {MAX_TOOLS}")
        for index, tool in enumerate(page.tools, len(self._tools)):
            first = self._indexes.setdefault(tool.name, index)
            if first != index:
                raise DuplicateTool(tool.name, first, index)
        self._tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return None
        if cursor in self._cursors:
            raise CursorRepeated(cursor, self.pages)
        if self.pages == MAX_PAGES:
            raise TooManyPages(MAX_PAGES)
        self._cursors.add(cursor)
        return cursor
