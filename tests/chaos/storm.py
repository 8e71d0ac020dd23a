"""A storm: twenty unruly servers, callers that never pause, and hands that kill, stop, flood and reload it all.

Everything random comes from one seed. The storm records what it sees; :mod:`chaos.test_chaos` judges it.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from support import script, unruly
from support.daemon import Daemon, toml
from support.unruly import STUBBORN, launched, scripted, untied
from treadle import procfs
from treadle_client import BrokerError, BrokerUnreachable
from treadle_client.aio import AsyncClient

SERVERS: Final = 20
CALLERS: Final = 8
HANDS: Final = 3
SLACK_S: Final = 3.0
"""What a call may take beyond its deadline while the processors are busy with everything else."""
VERB_S: Final = 20.0
"""What a verb of an administrator may take."""
GONE_S: Final = 12.0
"""How soon nothing is left of a killed daemon: the guard waits 2 s for its end and looks for 5 s."""

Tables = dict[str, dict[str, Any]]


def household(folder: Path) -> Tables:
    """The servers: each kind with several restart policies, all with a short ladder."""
    noise: script.Script = [
        script.per_tool("fail", script.raw("this is no JSON-RPC\n")),
        script.per_tool("wait", script.flood("chatter\n", 4 << 20, fd=2), script.text("loud")),
        script.per_tool("exit", script.kill_self()),
        script.per_tool("cwd", script.stop_reading()),
    ]
    helper = script.fork(STUBBORN, script.hang(), setsid=True, double=True)
    holder = script.fork(STUBBORN, script.hang(), keep_fds=(0, 1, 2))
    kinds: list[Callable[[script.Script], list[str]]] = [
        lambda steps: scripted(*steps),
        lambda steps: scripted(STUBBORN, *steps),
        lambda steps: untied(STUBBORN, *steps),
        lambda steps: untied(STUBBORN, *steps, setsid=True),
        lambda steps: launched(STUBBORN, *steps),
        lambda steps: scripted(*steps, helper),
        lambda steps: scripted(*steps, holder),
        lambda steps: scripted(script.sleep(0.3), *steps, script.on_eof(script.sleep(0.2), script.exit(0))),
        lambda _: unruly.shell(f"{unruly.HANDSHAKE} sleep 0.5; exit 3"),
        lambda _: unruly.shell("echo broken >&2; exit 1"),
    ]
    policies = ("always", "on-failure", "never")
    tables: Tables = {}
    for number in range(SERVERS):
        name = f"s{number}"
        steps = [script.record(folder / f"{name}.received"), *noise]
        tables[name] = {
            "command": kinds[number % len(kinds)](steps),
            "restart": policies[number % len(policies)],
            "restart_backoff_ms": 20,
            "restart_backoff_max_ms": 500,
            "restart_limit": 1000,
            "stop_timeout_ms": 400,
            "handshake_timeout_ms": 5000,
            "lazy": number % 7 == 0,
        }
    return tables


@dataclass
class Seen:
    """What a storm saw."""

    calls: Counter[str] = field(default_factory=Counter)
    deeds: Counter[str] = field(default_factory=Counter)
    late: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Storm:
    """One storm over one daemon, which is killed and started again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.tables = household(folder)
        self.daemon = Daemon(folder, self._configuration())
        self.seen = Seen()
        self._calls = 0
        self._raging = True
        self._up = asyncio.Event()

    def _configuration(self, tables: Tables | None = None) -> str:
        return toml(self.tables if tables is None else tables, {"drain_timeout_ms": 200})

    async def rage(self, seconds: float) -> None:
        """Let it rage. Ends with the daemon running, its servers stopped and nobody connected."""
        loop = asyncio.get_running_loop()
        await self._start()
        before = await self._holdings()
        end = loop.time() + seconds
        tasks = [
            *(asyncio.create_task(self._caller()) for _ in range(CALLERS)),
            *(asyncio.create_task(self._hand()) for _ in range(HANDS)),
            asyncio.create_task(self._reaper(end - seconds / 4)),
        ]
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        self._raging = False
        await asyncio.wait_for(asyncio.gather(*tasks), 90)
        after = await self._holdings()
        if after[0] > before[0] or after[1] != before[1]:
            self.seen.wrong.append(f"descriptors and threads were {before}, are {after}")
        if left := unruly.zombies(self.daemon):
            self.seen.wrong.append(f"zombies of the daemon: {left}")
        status = await self._end(signal.SIGTERM)
        if status not in (0, 8):
            self.seen.wrong.append(f"the daemon ended with {status}")
        await self._nothing_left()
        self._judge_log()
        self._judge_sent()

    # --- the daemon -------------------------------------------------------------------------------

    async def _start(self) -> None:
        await asyncio.to_thread(self.daemon.start)
        self._up.set()

    async def _end(self, number: signal.Signals, times: int = 1) -> int:
        self._up.clear()
        process = self.daemon.process
        assert process is not None
        for _ in range(times):
            process.send_signal(number)
            await asyncio.sleep(self.random.uniform(0, 0.1))
        return await asyncio.to_thread(process.wait, 30)

    async def _nothing_left(self) -> None:
        try:
            await asyncio.to_thread(unruly.nothing_left, self.daemon, GONE_S)
        except AssertionError as error:
            self.seen.wrong.append(f"{error}: {self.daemon.leftovers()}")

    async def _holdings(self) -> tuple[int, int]:
        """Descriptors and threads of the daemon with every server stopped and one connection."""
        async with AsyncClient(self.daemon.socket) as client:
            await asyncio.gather(*(client.stop(row["name"]) for row in await client.list()))
            pid = self.daemon.pid
            return unruly.descriptors(pid), unruly.status_of(pid, "Threads")

    async def _reaper(self, until: float) -> None:
        """Ends the daemon over and over, and starts it again; the last life is a long one."""
        loop = asyncio.get_running_loop()
        while self._raging and loop.time() < until:
            await asyncio.sleep(self.random.uniform(0.3, 6))
            how = self.random.choice(("kill", "kill", "kill, start at once", "guard first", "TERM", "TERM twice"))
            self.seen.deeds[f"daemon: {how}"] += 1
            if how.startswith("TERM"):
                status = await self._end(signal.SIGTERM, 2 if how.endswith("twice") else 1)
                if status not in (0, 8):
                    self.seen.wrong.append(f"{how}: the daemon ended with {status}")
                await self._nothing_left()
            elif how == "guard first":
                guard = unruly.guard_of(self.daemon)
                os.kill(self.daemon.pid, signal.SIGSTOP)
                os.kill(guard, signal.SIGKILL)
                await self._end(signal.SIGKILL)
            else:
                os.kill(self.daemon.pid, signal.SIGSTOP)  # so that the look at the guard stays true
                guarded = any(_is_guard(child.pid) and child.alive for child in procfs.children(self.daemon.pid))
                await self._end(signal.SIGKILL)
                if how == "kill" and guarded:
                    await self._nothing_left()
            await self._start()

    # --- the callers ------------------------------------------------------------------------------

    async def _caller(self) -> None:
        loop = asyncio.get_running_loop()
        tools = (*["echo"] * 12, *["reflect"] * 6, "wait", "fail", "exit", "cwd", "nobody")
        while self._raging:
            await self._up.wait()
            async with AsyncClient(self.daemon.socket) as client:
                for _ in range(self.random.randint(1, 40)):
                    self._calls += 1
                    text = f"call-{self._calls}-"
                    server = f"s{self.random.randrange(SERVERS)}"
                    tool = self.random.choice(tools)
                    budget = self.random.choice((0.05, 0.3, 1.0, 2.0))
                    began = loop.time()
                    try:
                        await client.call(server, tool, {"text": text}, timeout=budget)
                    except BrokerUnreachable as error:
                        outcome = f"unreachable/{error.outcome}"
                    except BrokerError as error:
                        outcome = f"{error.code}/{error.outcome}"
                        if error.outcome is None:
                            self.seen.wrong.append(f"{server}.{tool}: no outcome: {error}")
                    else:
                        outcome = "ok"
                    self.seen.calls[outcome] += 1
                    took = loop.time() - began
                    if took > budget + SLACK_S:
                        self.seen.late.append(f"{server}.{tool} with {budget} s took {took:.2f} s: {outcome}")
                    if outcome.startswith("unreachable"):
                        break

    # --- the hand ---------------------------------------------------------------------------------

    async def _hand(self) -> None:
        deeds: dict[str, Callable[[AsyncClient], Awaitable[None]]] = {
            "kill": self._kill,
            "signal": self._signal,
            "stop": self._stop,
            "start": self._start_server,
            "restart": self._restart,
            "reload": self._reload,
            "guard": self._kill_guard,
        }
        names = ["kill"] * 5 + ["signal"] * 4 + ["stop", "start", "start", "restart", "reload", "guard"]
        while self._raging:
            await asyncio.sleep(self.random.uniform(0.01, 0.15))
            if not self._up.is_set():
                continue
            name = self.random.choice(names)
            self.seen.deeds[name] += 1
            async with AsyncClient(self.daemon.socket) as client:
                try:
                    await asyncio.wait_for(deeds[name](client), VERB_S)
                except TimeoutError:
                    self.seen.wrong.append(f"{name} took more than {VERB_S} s")
                except BrokerError as error:
                    self.seen.deeds[f"{name}: {error.code}"] += 1

    def _victim(self) -> procfs.Process | None:
        family = [one for one in procfs.descendants(self.daemon.pid) if one.alive and not _is_guard(one.pid)]
        return self.random.choice(family) if family else None

    async def _kill(self, _: AsyncClient) -> None:
        if (victim := self._victim()) is not None:
            procfs.kill(victim)

    async def _signal(self, _: AsyncClient) -> None:
        numbers = (signal.SIGTERM, signal.SIGSTOP, signal.SIGSEGV, signal.SIGCONT, signal.SIGINT, signal.SIGHUP)
        if (victim := self._victim()) is not None:
            procfs.kill(victim, self.random.choice(numbers))

    async def _kill_guard(self, _: AsyncClient) -> None:
        for child in procfs.children(self.daemon.pid):
            if _is_guard(child.pid):
                procfs.kill(child)

    def _someone(self) -> str:
        return f"s{self.random.randrange(SERVERS)}"

    async def _stop(self, client: AsyncClient) -> None:
        within = self.random.choice((None, None, 0.001, 0.2, 2.0))
        told = await client.stop(self._someone(), within)
        if ("evidence" in told) is ("error" in told) and told.get("error") != "retirement_unconfirmed":
            self.seen.wrong.append(f"a stop told neither evidence nor its lack: {told}")

    async def _start_server(self, client: AsyncClient) -> None:
        await client.start(self._someone())

    async def _restart(self, client: AsyncClient) -> None:
        await client.restart(self._someone())

    async def _reload(self, client: AsyncClient) -> None:
        tables = {name: dict(table) for name, table in self.tables.items()}
        for name in self.random.sample(sorted(tables), 3):
            tables[name]["env"] = {"ROUND": str(self.random.random())}
        del tables[self._someone()]
        self.daemon.config.write_text(self._configuration(tables))
        await client.reload()

    # --- the judgement ----------------------------------------------------------------------------

    def _judge_log(self) -> None:
        """Of every life of the daemon that ended in order: no start without evidence of its end."""
        log = self.daemon.log()
        if found := re.search(r"^Traceback", log, re.MULTILINE):
            self.seen.wrong.append(f"a traceback: {log[max(0, found.start() - 500) : found.start() + 2000]}")
        for life in log.split(" listening on ")[1:]:
            if "SIGTERM: shutting down" not in life:
                continue
            for name in self.tables:
                ready = len(re.findall(rf" {name}: ready: ", life))
                told = len(re.findall(rf" {name}: (?:retired|retired late|NOT CONFIRMED)", life))
                if told < ready:
                    self.seen.wrong.append(f"{name}: {ready} starts and {told} ends in one life of the daemon")

    def _judge_sent(self) -> None:
        """No call came to any incarnation twice."""
        count: Counter[str] = Counter()
        for path in self.folder.glob("*.received"):
            count.update(set(re.findall(r"call-\d+-", path.read_text("utf-8", "replace"))))
            lines = Counter(re.findall(r'"tools/call".*?(call-\d+-)', path.read_text("utf-8", "replace")))
            self.seen.wrong += [
                f"{path.name}: {text} came {times} times" for text, times in lines.items() if times > 1
            ]
        self.seen.wrong += [f"{text} came to {times} servers" for text, times in count.items() if times > 1]
        self.seen.deeds["calls received"] = len(count)

    def clear(self) -> None:
        """After a storm that failed: end whatever is left."""
        process = self.daemon.process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        for pid in self.daemon.leftovers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _is_guard(pid: int) -> bool:
    line = unruly.command_line(pid)
    return b"treadle-guard" in line or b"treadle.custody" in line
