"""An exact scanner for the one line in a million that a decoder cannot take: too deep (floor 0, pure).

It walks the tokens iteratively, so that no depth can exhaust a stack, and finds where each member of the
outermost object begins and ends.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

TOKEN_BUDGET: Final = 262_144
"""How many tokens are looked at before the scanner gives up: it is slow, and a hostile server chooses the line."""

_TOKEN: Final = re.compile(
    rb"""[ \t\r\n]*+(?:
        (?P<open>[\[{])
      | (?P<close>[\]}])
      | (?P<comma>,)
      | (?P<colon>:)
      | (?P<string>"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+")
      | (?P<atom>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)


class NotJson(Exception):
    """The text is no JSON document, or too long to tell; ``str()`` says which."""


class Member(Struct, frozen=True):
    """One member of an object: its raw key (a JSON string), and the span and the deepest level of its value.

    Levels count from the root of the scanned text: a member's scalar is at level 1, an empty array at level 2.
    """

    key: bytes
    start: int
    end: int
    depth: int


def members(text: bytes, budget: int = TOKEN_BUDGET) -> list[Member] | None:
    """The members of the object that ``text`` is, in order, duplicates included; None for other JSON.

    Raises :class:`NotJson` when ``text`` is not one well-formed document (bytes in strings are taken to be
    UTF-8) or has more than ``budget`` tokens.
    """
    return _Scanner(text, budget).run()


class _Scanner:
    def __init__(self, text: bytes, budget: int) -> None:
        self._text = text
        self._budget = budget
        self._stack = bytearray()  # the open brackets
        self._members: list[Member] = []
        self._key = b""
        self._start = 0
        self._deepest = 1

    def run(self) -> list[Member] | None:
        text, stack = self._text, self._stack
        match_token = _TOKEN.match
        position = 0
        is_object = False
        # What may come next: a value (v), a value or the end of an array (V), a key (k), a key or the end of an
        # object (K), a colon (:), or what follows a value (,).
        expected = "v"
        for _ in range(self._budget):
            token = match_token(text, position)
            if token is None:
                raise NotJson(f"invalid token (byte {position})")
            kind = token.lastgroup
            start, position = token.start(token.lastindex or 0), token.end()
            if kind == "end" and expected == "," and not stack:
                return self._members if is_object else None
            if kind == "open" and expected in "vV":
                if len(stack) == 1:
                    self._start = start
                stack.append(text[start])
                is_object = stack[0] == 0x7B
                self._deepest = max(self._deepest, len(stack))
                expected = "K" if text[start] == 0x7B else "V"
            elif kind == "close" and self._closes(text[start], expected):
                stack.pop()
                expected = ","
                if len(stack) == 1:
                    self._ended(position)
            elif kind in ("string", "atom") and expected in "vV":
                expected = ","
                if len(stack) == 1:
                    self._start = start
                    self._ended(position)
            elif kind == "string" and expected in "kK":
                if len(stack) == 1:
                    self._key = text[start:position]
                expected = ":"
            elif kind == "colon" and expected == ":":
                expected = "v"
            elif kind == "comma" and expected == "," and stack:
                expected = "k" if stack[-1] == 0x7B else "v"
            else:
                raise NotJson("ends too early" if kind == "end" else f"unexpected {kind} (byte {start})")
        raise NotJson(f"nests too deep, and has more than {self._budget} tokens")

    def _closes(self, bracket: int, expected: str) -> bool:
        # In ASCII a closing bracket is its opening one plus 2.
        return bool(self._stack) and bracket == self._stack[-1] + 2 and expected in ",VK"

    def _ended(self, position: int) -> None:
        self._members.append(Member(self._key, self._start, position, self._deepest))
        self._deepest = 1
