"""The typed result of a tool call."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ToolResult:
    """What a tool answered.

    ``content`` is the list of blocks as dicts: ``{"type": "text", "text": ...}``, or ``{"type": <kind>}`` for
    other kinds (with their payload when the call asked for ``content="all"``). ``is_error`` says that the tool
    ran and failed. ``structured`` is the structured result: any value, None among them, so ``has_structured``
    tells a result that is null from one that is absent.

        >>> result = broker.call("demo", "add", {"a": 1, "b": 2})
        >>> result.text, result.structured, result.is_error
        ('3', {'sum': 3}, False)
    """

    __slots__ = ("content", "has_structured", "is_error", "structured")

    def __init__(
        self,
        content: list[dict[str, Any]],
        is_error: bool = False,
        structured: Any = None,
        *,
        has_structured: bool | None = None,
    ) -> None:
        self.content = content
        self.is_error = is_error
        self.structured = structured
        self.has_structured = structured is not None if has_structured is None else has_structured

    @property
    def text(self) -> str:
        """The text of all text blocks, joined by newlines; empty when there is none.

        >>> ToolResult([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]).text
        'a\\nb'
        """
        return "\n".join(block["text"] for block in self.content if block["type"] == "text")

    def to_value(self) -> dict[str, Any]:
        """The result as the socket page's value of ``call``.

        >>> ToolResult([], structured=None, has_structured=True).to_value()
        {'content': [], 'is_error': False, 'structured': None}
        """
        value: dict[str, Any] = {"content": self.content, "is_error": self.is_error}
        if self.has_structured:
            value["structured"] = self.structured
        return value

    def __eq__(self, other: object) -> bool:
        return self.to_value() == other.to_value() if isinstance(other, ToolResult) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        structured = f", structured={self.structured!r}" if self.has_structured else ""
        return f"ToolResult({self.content!r}, is_error={self.is_error}{structured})"
