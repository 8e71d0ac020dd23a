"""What keeps custody beyond the daemon's own life: the state directory, the record, the guard (floor 4).

None of it is needed to serve. What cannot be had is logged as an error that says which protection is missing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import signal
import stat
from typing import Final

from treadle.custody import Guard, Record, recover
from treadle.errors import ConfigError, Problem
from treadle.tree import Custody

log = logging.getLogger(__name__)

GUARD_PAUSE_S: Final = 1.0
"""Between the end of a guard and the start of another one."""
GUARD_LOOK_S: Final = 2.0
"""How often it is looked at whether the guard was stopped."""

_A_FILE: Final = "it, or a directory above it, is a file"


def secure_state_dir(path: str, file: str) -> None:
    """Make the state directory; one that cannot be made is logged.

    Raises :class:`ConfigError`, which names the configuration ``file``, for one that must not be used: whoever can
    write there says which processes the next start ends.
    """
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        pass  # refused below
    except OSError as error:
        log.error("cannot make the state directory %s: %s", path, error.strerror or error)
        return
    require_safe(path, file)


def require_safe(path: str | os.PathLike[str], file: str) -> None:
    """Raise :class:`ConfigError` for a state directory that must not be used; nothing is made, none is fine."""

    def refused(what: str, fix: str) -> ConfigError:
        text = f"the state directory {path} cannot be used: {what}"
        return ConfigError((Problem(file, 0, 0, "[broker] state_dir", text, fix),))

    try:
        found = os.stat(path)
    except FileNotFoundError:
        if not os.path.lexists(path):
            return
        raise refused("it is a symbolic link to nothing", "name a directory") from None
    except NotADirectoryError:
        raise refused(_A_FILE, "name a directory") from None
    except OSError as error:
        raise refused(error.strerror or str(error), "name one that the daemon's user can reach") from None
    if not stat.S_ISDIR(found.st_mode):
        raise refused(_A_FILE, "name a directory")
    if found.st_uid not in (0, os.geteuid()):
        raise refused(f"it belongs to another account (uid {found.st_uid})", "name one of the daemon's own")
    if found.st_mode & 0o022:
        raise refused("other accounts can write to it", f"chmod go-w {path}")


def own_directory(state_dir: str, server: str) -> str:
    """The default working directory of a server; the root directory where it cannot be had."""
    own = os.path.join(state_dir, "servers", server)
    try:
        os.makedirs(own, mode=0o700, exist_ok=True)
    except OSError as error:
        what = error.strerror or error
        log.error("%s: runs in /, cannot make %s: %s", server, own, what, extra={"server": server})
        return "/"
    return own


class Keeper:
    """The custody of one daemon, with its record in ``state_dir`` and its guard.

    Made while the lock of ``socket`` is held and a loop runs, before anything is spawned: first it ends what an
    earlier daemon of that socket left, and logs what was found. A guard that ends is replaced.
    """

    def __init__(self, state_dir: str, socket: str) -> None:
        name = hashlib.sha256(os.fsencode(socket)).hexdigest()[:16]  # the record is kept for each socket
        path = os.path.join(state_dir, f"record-{name}.json")
        for finding in recover(path):
            extra = {"server": finding.server} if finding.server else None
            log.warning("left by an earlier daemon: %s", finding, extra=extra)
        self._record = Record(path)
        self.custody = Custody(record=self._record)
        self._guard: Guard | None = None
        self._again: asyncio.TimerHandle | None = None
        self._was_stopped = False
        self._start_guard()

    async def end(self) -> bool:
        """With no server left: end the orphans that nobody could attribute, then the guard and the record. Returns
        whether they are proven gone; what is not is logged.

        What may be left stays in the record, and the guard stays for it.
        """
        if self._again is not None:
            self._again.cancel()
        ended = await self.custody.end_strangers()
        if ended.stragglers:
            log.warning("%d orphans that belonged to no server were killed", ended.stragglers)
        if ended.drained is False:
            log.error("orphans of no server could not be ended: %s names them by pid", self._record.path)
        elif ended.drained is None:
            log.error("orphans of no server fork and end without pause: it is not proven that none is left")
        gone = ended.drained is True
        if self._guard is not None:
            if gone and self._record.empty:
                await self._guard.release()
            else:
                self._guard.leave()
        if gone:
            self._record.remove()
        return gone

    def _start_guard(self) -> None:
        try:
            self._guard = guard = Guard.start(self._record)
            self.custody.own(guard.pid)
            loop = asyncio.get_running_loop()
            guard.watch(loop, self._guard_ended)
            self._was_stopped = False
            self._again = loop.call_later(GUARD_LOOK_S, self._look_at_guard)
        except OSError as error:
            log.error(
                "no guard runs: %s. Should this daemon be killed, only its next start ends what its servers leave",
                error.strerror or error,
            )

    def _look_at_guard(self) -> None:
        assert self._guard is not None
        stopped = self._guard.stopped
        if stopped:
            # One that was continued and is stopped again is held by somebody: its end brings another one.
            remedy = "killed" if self._was_stopped else "continued"
            log.error("the guard (process %d) was stopped by somebody; it is %s", self._guard.pid, remedy)
            self._guard.send(signal.SIGKILL if self._was_stopped else signal.SIGCONT)
        self._was_stopped = stopped
        self._again = asyncio.get_running_loop().call_later(GUARD_LOOK_S, self._look_at_guard)

    def _guard_ended(self) -> None:
        assert self._guard is not None
        if self._again is not None:
            self._again.cancel()
        self.custody.disown(self._guard.pid)
        log.error("the guard (process %d) ended; another one takes its place", self._guard.pid)
        self._guard = None
        self._again = asyncio.get_running_loop().call_later(GUARD_PAUSE_S, self._start_guard)
