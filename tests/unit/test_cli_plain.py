"""A plain call or list is read without click, and then it is the very work that click would have ordered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.cli import app, calling, listing, plain, serving

PLAIN = [
    "call demo add a=1 b=2",
    "call demo add",
    "call demo.add a=1",
    "call demo add --json",
    "call --json demo add",
    "call demo add --timeout 5 a=1",
    "call demo add --timeout=0.5",
    "call demo add --json-args - -q",
    "call demo add --json-args {} --output raw -v",
    "call demo add --output text --output json",
    "call --socket /tmp/s demo add x=-1",
    "call demo add x=--y --quiet --verbose",
    "--socket /tmp/s call demo add",
    "--socket=/tmp/s call demo add --socket /tmp/own",
    "--socket call --socket=/tmp/s list",
    "--socket /tmp/s serve --strict",
    "list",
    "list demo",
    "list --json demo --socket=/tmp/s",
    "list -q -v",
    "serve",
    "serve --config /etc/t.toml --socket=/tmp/s --strict -q",
]

FOR_CLICK = [
    "",
    "status",
    "--help",
    "call",
    "call demo",
    "call --help",
    "call demo add -h",
    "call demo add --nope",
    "call demo add -- --json",
    "call demo add --timeout",
    "call demo add --timeout soon",
    "call demo add --timeout 0",
    "call demo add --timeout nan",
    "call demo add --output xml",
    "call demo add --json=yes",
    "call demo add -qv",
    "list demo add",
    "list --schema demo",
    "--socket",
    "--socket /tmp/s",
    "--socket= list",
    "--socket /tmp/s status",
    "--json call demo add",
    "serve now",
    "serve --strict=yes",
    "serve --metrics-port 9464x",
    "serve --json",
]


class _Ordered(list[tuple[Any, ...]]):
    def call(self, words: Any, options: Any, **keys: Any) -> int:
        full = {"json_args": None, "timeout": None, "form": "text"} | keys
        self.append(("call", list(words), options, full))
        return 0

    def serve(self, options: Any, **keys: Any) -> int:
        full = {"config_path": None, "strict": False, "metrics_port": None} | keys
        self.append(("serve", options, full))
        return 0

    def list_(self, server: Any, options: Any, *, schema: bool = False) -> int:
        self.append(("list", server, options, schema))
        return 0


@pytest.fixture
def ordered(monkeypatch: pytest.MonkeyPatch) -> _Ordered:
    """What was ordered, instead of doing it."""
    orders = _Ordered()
    monkeypatch.setattr(calling, "run", orders.call)
    monkeypatch.setattr(listing, "run", orders.list_)
    monkeypatch.setattr(serving, "run", orders.serve)
    return orders


@pytest.mark.parametrize("line", PLAIN)
def test_a_plain_line_orders_what_click_would(line: str, ordered: _Ordered) -> None:
    work = plain.parse(line.split())
    assert work is not None
    assert work() == app.run(line.split()) == 0
    assert len(ordered) == 2
    assert ordered[0] == ordered[1]


@pytest.mark.parametrize("line", FOR_CLICK)
def test_any_other_line_is_left_to_click(line: str) -> None:
    assert plain.parse(line.split()) is None


_LINE = (
    "demo demo.add add a=1 b=-2 - --json -q --quiet -v --timeout 5 --timeout=2 --output raw --output=json "
    "--json-args {} --socket /s --socket=/s --schema --x -qv --"
)
_WORDS = st.sampled_from(_LINE.split())


@given(
    st.sampled_from(["", "--socket /g ", "--socket=/g ", "--socket /g --socket=/h "]),
    st.sampled_from(["call", "list"]),
    st.lists(_WORDS, max_size=6),
)
def test_what_is_read_without_click_never_differs_from_click(before: str, verb: str, words: list[str]) -> None:
    line = [*before.split(), verb, *words]
    orders = _Ordered()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calling, "run", orders.call)
        patch.setattr(listing, "run", orders.list_)
        work = plain.parse(line)
        if work is not None:
            work()
            app.run(line)
            assert len(orders) == 2
            assert orders[0] == orders[1]
