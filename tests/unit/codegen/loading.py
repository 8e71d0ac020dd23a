"""Listings for the tests: real ones from files, and hostile ones as the generator takes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from treadle.codegen import ListedTool, from_result

VECTORS = Path(__file__).parents[2] / "vectors"
REAL = ("everything", "filesystem", "git", "memory", "time")


def real(name: str) -> tuple[ListedTool, ...]:
    """The listing of a real server, as its `tools/list` answered."""
    return from_result(json.loads((VECTORS / "listings" / f"{name}.json").read_text()))


def listed(tools: list[dict[str, Any]]) -> tuple[ListedTool, ...]:
    """Any list of tools, without the checks that the wire makes."""
    return tuple(
        ListedTool(
            tool["name"],
            description=tool.get("description"),
            input_schema=tool["inputSchema"],
            output_schema=tool.get("outputSchema"),
        )
        for tool in tools
    )


def one(
    schema: Any, *, name: str = "t", output: Any = None, description: str | None = None
) -> tuple[ListedTool, ...]:
    """A listing of one tool."""
    return (ListedTool(name, description=description, input_schema=schema, output_schema=output),)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["type", "properties", "required", "items", "enum", "anyOf"]),
            inner | st.sampled_from(["object", "array", "string", "integer"]),
            max_size=5,
        )
    ),
    max_leaves=20,
)
"""Any JSON value, with a taste for what schemas are made of."""
