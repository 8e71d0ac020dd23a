"""Whether an outcome is the one that an entry of the catalogue expects."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from support.catalogue.model import ANY, CallErr, Fatal, Ok
from support.script import Json
from treadle.errors import Fault, ServerError, Unavailable, explain, failure_code
from treadle.wire.messages import Tool


def assert_outcome(expected: Ok | CallErr | Fatal, outcome: object) -> None:
    match expected:
        case Ok(value, tools):
            assert not isinstance(outcome, Fault), explain(outcome)
            assert value is ANY or (outcome == value and json.dumps(outcome) == json.dumps(value))
            if tools is not None:
                assert_tools(tools, outcome)
        case CallErr(code, reason, data):
            assert isinstance(outcome, Fault)
            assert failure_code(outcome) == code
            assert re.search(reason, explain(outcome)), explain(outcome)
            if data is not ANY:
                assert isinstance(outcome, ServerError)
                assert (None if outcome.data is None else json.loads(outcome.data)) == data
        case Fatal(reason):
            assert isinstance(outcome, Unavailable)
            assert re.search(reason, explain(outcome)), explain(outcome)


def assert_tools(entries: Sequence[Json], outcome: object) -> None:
    assert isinstance(outcome, tuple)
    tools: tuple[Tool, ...] = outcome
    assert [tool.name for tool in tools] == [entry["name"] for entry in entries]
    for tool, entry in zip(tools, entries, strict=True):
        assert json.loads(tool.input_schema) == entry["inputSchema"]
        assert tool.description == entry.get("description")
        assert (tool.output_schema and json.loads(tool.output_schema)) == entry.get("outputSchema")
        assert (tool.annotations and json.loads(tool.annotations)) == entry.get("annotations")
