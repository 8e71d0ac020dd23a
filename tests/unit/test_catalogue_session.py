"""Every entry of the catalogue's groups A to G against the pure session, in virtual time and without a loop."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from support.catalogue import BY_ID, ENTRIES, Entry
from support.catalogue.model import HELLO, Call, Calls, Death, Fatal, Listing, Ok, Start, StartErr
from support.catalogue.verdict import assert_outcome
from support.twin import Simulation
from treadle.errors import ChannelClosed, Fault, StartFault, Unavailable, explain
from treadle.session import (
    Answered,
    Died,
    Event,
    Failed,
    Initialized,
    Listed,
    Session,
    Warned,
)
from treadle.wire.interchange import arguments_to_json

BUDGETS = {"handshake_timeout_ms": 10_000, "list_timeout_ms": 30_000, "call_timeout_ms": 60_000}
LONGEST_REASON = 1_000
ROWS_TO_PLAY = [entry for entry in ENTRIES if entry.group in "ABCDEFG" and not entry.needs_process]


class Conversation:
    """A session and a simulated server, connected by nothing but function calls."""

    def __init__(self, entry: Entry) -> None:
        settings = {"content": "text", **BUDGETS, **entry.settings}
        self.settings: dict[str, Any] = settings
        self.server = Simulation(entry.script)
        self.session = Session(
            "odd",
            client_version="1.2.3",
            accept_versions=settings.get("accept_versions", ()),
            bad_lines=settings.get("bad_lines", "fatal"),
        )
        self.now = 0.0
        self.outcomes: dict[object, object] = {}
        self.warnings = 0
        self.death: Fault | None = None
        self.reasons: set[str] = set()

    def start(self) -> None:
        self.session.initialize(
            self.after("handshake_timeout_ms"), timeout_ms=self.settings["handshake_timeout_ms"]
        )
        self.play_until(["started"])

    def take_listing(self) -> object:
        token = object()
        self.session.list_tools(self.after("list_timeout_ms"), token, timeout_ms=self.settings["list_timeout_ms"])
        return self.play_until([token])[0]

    def call(self, calls: Sequence[Call]) -> Sequence[object]:
        for number, call in enumerate(calls):
            timeout_ms = call.timeout_ms or self.settings["call_timeout_ms"]
            self.session.call(
                call.tool,
                arguments_to_json(dict(call.arguments)),
                self.now + timeout_ms / 1000,
                number,
                timeout_ms=timeout_ms,
                content=self.settings["content"],
            )
        return self.play_until(range(len(calls)))

    def after(self, budget: str) -> float:
        return self.now + float(self.settings[budget]) / 1000

    def play_until(self, tokens: Sequence[object]) -> list[object]:
        """Go on until all of ``tokens`` are settled or the session is dead; their outcomes, in order."""
        while not all(token in self.outcomes for token in tokens) and self.death is None:
            if self.exchange():
                continue
            times = [t for t in (self.server.next_wakeup, self.session.next_deadline) if t is not None]
            assert times, "nobody will ever say anything again"
            self.now = max(self.now, min(times))
            self.take(self.session.expire(self.now))
        return [self.outcomes.pop(token, None) for token in tokens]

    def exchange(self) -> bool:
        """Carry what both sides have to say now; False when that was nothing."""
        self.send()
        spoke = False
        for chunk in self.server.output(self.now):
            spoke = True
            self.take(self.session.receive_data(chunk))
            self.send()
            if self.death is not None:
                return True
        if self.server.end is not None and self.death is None:
            said = self.server.stderr.decode("utf-8", "replace")
            self.take(self.session.die(ChannelClosed(f"the server ended: {self.server.end}; stderr: {said}")))
            return True
        return spoke

    def send(self) -> None:
        for _, line in self.session.take_output():
            self.server.feed(line)

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Initialized():
                    self.outcomes["started"] = event.result
                case Listed(token, tools):
                    self.outcomes[token] = tools
                case Answered(token, result):
                    self.outcomes[token] = result.to_value()
                case Failed(token, fault):
                    self.outcomes[token] = fault
                    if isinstance(fault, Unavailable):
                        self.reasons.add(explain(fault))
                case Warned():
                    self.warnings += 1
                case Died(fault):
                    self.death = fault


# --- what must come of it ------------------------------------------------------------------------------------


def play(entry: Entry) -> Conversation:
    conversation = Conversation(entry)
    acts = list(entry.acts)
    if not isinstance(acts[0], Start):
        acts.insert(0, Start(Ok()))
    for act in acts:
        match act:
            case Start(Ok()):
                conversation.start()
                assert conversation.death is None, explain(conversation.death)
                if not any(isinstance(other, Listing) for other in acts):
                    assert_outcome(Ok(), conversation.take_listing())
            case Start(StartErr(kind, reason)):
                conversation.start()
                assert isinstance(conversation.death, kind)
                assert isinstance(conversation.death, StartFault)
                assert re.search(reason, explain(conversation.death)), explain(conversation.death)
            case Listing(expected):
                assert_outcome(expected, conversation.take_listing())
            case Calls(calls):
                for call, outcome in zip(calls, conversation.call(calls), strict=True):
                    assert_outcome(call.expected, outcome)
            case Death(Fatal(reason)):
                conversation.play_until([object()])
                assert conversation.death is not None
                assert re.search(reason, explain(conversation.death))
            case _:
                raise AssertionError(f"{entry.id}: a session cannot do {act}")
    return conversation


@pytest.mark.parametrize("identifier", [entry.id for entry in ROWS_TO_PLAY])
def test_the_session_meets_the_catalogue(identifier: str) -> None:
    entry = BY_ID[identifier]
    conversation = play(entry)
    session = conversation.session
    assert session.in_flight == 0
    if entry.lives:
        assert_outcome(HELLO, conversation.call([Call(HELLO)])[0])
        assert conversation.death is None
    else:
        assert conversation.death is not None
        assert len(explain(conversation.death)) < LONGEST_REASON
        assert session.receive_data(b"anything\n") == []
        assert session.die(ChannelClosed("too late")) == []
        assert session.fault == conversation.death
        with pytest.raises(Unavailable) as refused:
            session.call("echo", b"{}", conversation.now + 1, "late", timeout_ms=1000)
        assert refused.value.outcome == "not_sent"
        assert len({explain(refused.value), *conversation.reasons}) == 1
    for counter in ("dropped", "bad_lines"):
        wanted = getattr(entry, counter)
        assert wanted is None or getattr(session, counter) == wanted, counter
    assert entry.warnings is None or conversation.warnings == entry.warnings


# --- the catalogue itself ------------------------------------------------------------------------------------


def test_every_row_of_the_groups_a_to_g_has_an_entry() -> None:
    rows = (
        "A1 A2 A3 A4 A5 A7 A9 A10 B1 B2 B3 B4 B5 B6 B8 C1 C2 C3 C4 C6 C9 "
        "D-1 D-2 D-3 D-4 D-5 D-6 D-10 E1 E2 E3 E4 E5 E6 E7 E8 E10 "
        "F1 F2 F3 F4 F5 F6 F9 F10 G1 G2 G3 G4 G5 G6 G7 G9"
    )
    covered = {entry.id.partition("/")[0] for entry in ENTRIES}
    assert set(rows.split()) <= covered


def test_an_identifier_is_given_once_and_every_script_is_json() -> None:
    assert len(BY_ID) == len(ENTRIES)
    for entry in ENTRIES:
        assert json.loads(json.dumps(entry.script)) == entry.script
