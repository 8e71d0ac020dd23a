"""How ``treadle serve`` tells why it cannot start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support.journal import Receiver, parsed
from treadle import logs
from treadle.cli import serving
from treadle.cli.options import Options
from treadle.journal import Journal


def test_to_the_journal_it_is_one_entry_with_the_priority_of_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "treadle.toml"
    file.write_text("[broker]\nmax_connections = 0\nlog_level = 7\n")
    receiver = Receiver(tmp_path / "journal")
    monkeypatch.setattr(logs, "Journal", lambda: Journal(receiver.address))
    with open(tmp_path / "stream", "w+") as stream:
        found = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        monkeypatch.setattr(sys, "stderr", stream)
        assert serving.run(Options(), config_path=str(file)) == 2
        stream.seek(0)
        assert stream.read() == ""
    fields = dict(parsed(receiver.read()[0]))
    receiver.close()
    assert fields["PRIORITY"] == b"3"
    message = fields["MESSAGE"].decode()
    assert message.startswith(f"the configuration cannot be used\n{file}:2:")
    assert "max_connections" in message
    assert "log_level" in message
