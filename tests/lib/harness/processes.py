"""A service of real processes: coordinator, a worker for each host, ranks that run a function of a test's file.

Everything is driven from a plain, synchronous test. What a rank says (`Rank.say`) comes back as a `Said`; what it logs
and how it ends is kept, too. Processes may be killed, stopped and continued; whatever is left at the end is killed.

    def body(rank): ...                       # or async def; in the test's own file

    with real_service(hosts=2) as service:
        ranks = service.start(body, (0, 0, 1))
        ranks[2].wait_for("ready")
        ranks[2].kill()
        error = ranks[0].wait_for("error")
"""

import asyncio
import importlib.util
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from harness.nursery import Child, born

from hocket.fabric.core import CORE_VARIABLE

ROOT = Path(__file__).parents[3]
PYTHON_PATH = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "lib")])
START_S = 20.0
"""How long a process may take to come up."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


# --- processes, seen by the test -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Said:
    """One word of a rank's: ``facts`` as JSON knows them, ``at_s`` the test's monotonic time."""

    word: str
    facts: dict[str, Any]
    at_s: float

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]


class Process:
    """A child and its output, line by line, as it comes."""

    def __init__(self, name: str, popen: "subprocess.Popen[str] | Child") -> None:
        self.name = name
        self._popen = popen
        self.log: list[str] = []
        self.out: list[tuple[str, float]] = []
        self._news = threading.Condition()
        assert self._popen.stdout is not None and self._popen.stderr is not None
        self._threads = [
            threading.Thread(target=self._read, args=(self._popen.stdout, False), daemon=True),
            threading.Thread(target=self._read, args=(self._popen.stderr, True), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: IO[str], is_log: bool) -> None:
        for line in stream:
            with self._news:
                if is_log:
                    self.log.append(line.rstrip("\n"))
                else:
                    self.out.append((line.rstrip("\n"), time.monotonic()))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def wait_until(self, look: Callable[[], Any], what: str, within_s: float = START_S) -> Any:
        """What ``look`` finds in the output, once it finds anything."""
        with self._news:
            until_s = time.monotonic() + within_s
            while not (found := look()):
                left_s = until_s - time.monotonic()
                ended = not any(thread.is_alive() for thread in self._threads)
                if left_s <= 0 or ended:
                    tail = "\n".join(self.log[-20:])
                    state = f"ended with {self._popen.poll()}" if ended else f"silent for {within_s:g} s"
                    raise AssertionError(f"{self.name} ({state}) never said: {what}\n{tail}")
                self._news.wait(min(left_s, 0.2))
            return found

    def wait_for_log(self, pattern: str, within_s: float = START_S) -> re.Match[str]:
        """The first line of its log that matches."""
        found: re.Match[str] = self.wait_until(
            lambda: next((match for line in self.log if (match := re.search(pattern, line))), None), pattern, within_s
        )
        return found

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    def send_signal(self, number: int) -> None:
        """Sends it a signal."""
        self._popen.send_signal(number)

    def kill(self) -> float:
        """SIGKILL. Returns when (monotonic)."""
        at_s = time.monotonic()
        self._popen.kill()
        return at_s

    def stop(self) -> float:
        """SIGSTOP. Returns when (monotonic)."""
        self._popen.send_signal(signal.SIGSTOP)
        return time.monotonic()

    def resume(self) -> None:
        """SIGCONT."""
        self._popen.send_signal(signal.SIGCONT)

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._popen.poll() is None

    def status(self, within_s: float = START_S) -> int:
        """Its exit status: negative for a signal."""
        return self._popen.wait(within_s)

    def cpu_s(self) -> float:
        """Processor time that it has used, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def rss_nbytes(self) -> int:
        """Resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else 0

    def listens_on(self) -> set[str]:
        """Addresses (without ports) on which it listens over TCP."""
        inodes = set()
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(OSError):
                match = re.match(r"socket:\[(\d+)\]", os.readlink(entry))
                if match:
                    inodes.add(match[1])
        found = set()
        for table in ("tcp", "tcp6"):
            for row in Path(f"/proc/{self.pid}/net/{table}").read_text().splitlines()[1:]:
                columns = row.split()
                if columns[3] == "0A" and columns[9] in inodes:
                    found.add(columns[1].partition(":")[0])
        return found

    def end(self, grace_s: float = 5.0) -> None:
        """SIGTERM, and SIGKILL for who does not listen."""
        if self.running:
            with suppress(ProcessLookupError):
                self.resume()
                self._popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(grace_s)
            if self.running:
                self._popen.kill()
        self._popen.wait()
        for thread in self._threads:
            thread.join(5.0)
        for stream in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


def launch(command: Sequence[str], env: dict[str, str], prefix: Sequence[str] = ()) -> "subprocess.Popen[str]":
    """Starts a program with pipes, from the root of the tree."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*prefix, *command], env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1, cwd=ROOT
    )


class RankProcess(Process):
    """A rank. ``wait_for`` hears what it says, ``tell`` speaks to it."""

    _heard: int = 0

    def said(self) -> list[Said]:
        """All that it has said."""
        with self._news:
            return [Said(facts.pop("word"), facts, at_s) for line, at_s in self.out for facts in [json.loads(line)]]

    def wait_for(self, word: str, within_s: float = START_S) -> Said:
        """The next time that it says ``word``, after what was waited for before."""

        def look() -> Said | None:
            for index in range(self._heard, len(self.out)):
                line, at_s = self.out[index]
                facts = json.loads(line)
                if facts["word"] in (word, "failed"):
                    self._heard = index + 1
                    return Said(facts.pop("word"), facts, at_s)
            return None

        found: Said = self.wait_until(look, f"{word!r}; it said {[line for line, _ in self.out][-5:]}", within_s)
        if found.word != word:
            raise AssertionError(f"{self.name} failed instead of saying {word!r}:\n{found['trace']}")
        return found

    def result(self, within_s: float = START_S) -> Any:
        """What its body returned."""
        return self.wait_for("result", within_s)["value"]

    def tell(self, word: str) -> None:
        """Says a word to `Rank.hear`."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(word + "\n")
        self._popen.stdin.flush()


# --- the service -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Host:
    """Where a worker and its ranks run: ``prefix`` is a command that runs another one there."""

    prefix: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


class RealService:
    """See the module. ``coordinator`` and ``workers`` are processes, ``port`` and ``http_port`` the coordinator's."""

    def __init__(self, folder: str, hosts: Sequence[Host], coordinator_options: Sequence[str], **env: str) -> None:
        self.folder, self.hosts = folder, list(hosts)
        self.env = {
            key: value for key, value in os.environ.items() if not key.startswith("HOCKET_") or key == CORE_VARIABLE
        }
        self.env |= {"PYTHONPATH": PYTHON_PATH, "PYTHONUNBUFFERED": "1", **env}
        self._coordinator_options = list(coordinator_options)
        self.workers: list[Process] = []
        self.ranks: list[RankProcess] = []
        self._all: list[Process] = []
        self.coordinator = self.start_coordinator(port="0", http_port="0")
        for number in range(len(self.hosts)):
            self.workers.append(self.start_worker(number))

    def start_coordinator(self, port: str, http_port: str) -> Process:
        """Starts the coordinator, which is `coordinator` from now on."""
        options = self._coordinator_options
        if "--port" not in options:
            options = ["--port", port, *options]
        command = [sys.executable, "-m", "hocket.coordinator", "--http-port", http_port, *options]
        prefix = self.hosts[0].prefix if self.hosts else ()
        process = self._keep(Process("coordinator", launch(command, self.env, prefix)))
        match = process.wait_for_log(r"coordinator listening on (\S+), http on (\S+)")
        self.address = match[1]
        self.port = int(self.address.rpartition(":")[2])
        self.http_port = int(match[2].rpartition(":")[2])
        self.coordinator = process
        return process

    def start_worker(self, number: int) -> Process:
        """Starts a host's worker and waits until the coordinator knows it."""
        host = self.hosts[number]
        command = [sys.executable, "-m", "hocket.worker", "--socket", self.socket(number), "--name", f"h{number}"]
        if "--coordinator" not in host.options:
            command += ["--coordinator", self.address]
        if "--data-address" not in host.options and not host.prefix:
            command += ["--data-address", f"127.0.0.{number + 1}:0"]
        started = launch([*command, *host.options], self.env | host.env, host.prefix)
        process = self._keep(Process(f"worker {number}", started))
        process.wait_for_log(r"registered with coordinator")
        return process

    def socket(self, host: int) -> str:
        """Path of a host's worker socket."""
        return f"{self.folder}/w{host}.sock"

    def start(
        self, body: Callable[["Rank"], Any], placement: Sequence[int], *, job: str = "test", **env: str
    ) -> list[RankProcess]:
        """Starts ``body`` as rank r on host ``placement[r]``, for all r."""
        return [self.start_one(body, r, placement, job=job, **env) for r in range(len(placement))]

    def start_one(
        self, body: Callable[["Rank"], Any], rank: int, placement: Sequence[int], *, job: str = "test", **env: str
    ) -> RankProcess:
        """Starts one rank of a world."""
        host = self.hosts[placement[rank]]
        path = inspect.getsourcefile(body)
        assert path is not None
        environ = (
            self.env
            | host.env
            | {
                "HOCKET_WORKER": f"unix:{self.socket(placement[rank])}",
                "HOCKET_JOB": job,
                "RANK": str(rank),
                "WORLD_SIZE": str(len(placement)),
                **env,
            }
        )
        command = [sys.executable, "-m", "harness.processes", path, body.__name__]
        # a forked rank has the core that its parent has loaded
        anew = host.prefix or CORE_VARIABLE in env
        born_ = launch(command, environ, host.prefix) if anew else born(path, body.__name__, environ, str(ROOT))
        process = RankProcess(f"rank {rank}", born_)
        self.ranks.append(process)
        self._all.append(process)
        return process

    def _keep(self, process: Process) -> Process:
        self._all.append(process)
        return process

    def end(self) -> None:
        """Ends everything."""
        for process in reversed(self._all):
            process.end()

    def check_nobody_crashed(self) -> None:
        """Asserts that nothing ended by a signal of its own: SIGSEGV, SIGABRT and the like."""
        for process in self._all:
            status = None if process.running else process.status()
            allowed = (None, 0, 1, -signal.SIGKILL, -signal.SIGTERM)
            assert status in allowed, f"{process.name} ended with {status}: {process.log[-10:]}"


@contextmanager
def real_service(
    hosts: int | Sequence[Host] = 1, coordinator_options: Sequence[str] = (), **env: str
) -> Iterator[RealService]:
    """Starts a coordinator and a worker for each host; ends them, and all ranks, afterwards."""
    placed = [Host() for _ in range(hosts)] if isinstance(hosts, int) else hosts
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        service = RealService.__new__(RealService)
        service._all = []
        try:
            service.__init__(folder, placed, coordinator_options, **env)  # type: ignore[misc]
            yield service
            service.check_nobody_crashed()
        finally:
            service.end()


def idle(seconds: float) -> None:
    """Lets real time pass: what the case is about is somebody's slowness or a process that is stopped."""
    threading.Event().wait(seconds)


# --- inside a rank ---------------------------------------------------------------------------------------------------


class Rank:
    """What a body gets: its number, and a way to talk to the test."""

    def __init__(self) -> None:
        self.number = int(os.environ["RANK"])
        self.size = int(os.environ["WORLD_SIZE"])

    def connect(self, **how: Any) -> Any:
        """`hocket.connect` as this rank."""
        import hocket

        return hocket.connect(**how)

    def say(self, word: str, **facts: Any) -> None:
        """Tells the test something; ``facts`` become JSON."""
        sys.stdout.write(json.dumps({"word": word, **facts}, default=_plain) + "\n")
        sys.stdout.flush()

    def hear(self) -> str:
        """The test's next word (blocks)."""
        return sys.stdin.readline().strip()

    def hear_later(self) -> "asyncio.Future[str]":
        """The test's next word, once it comes. For a coroutine that does something else meanwhile."""
        return asyncio.ensure_future(self.heard())

    async def heard(self) -> str:
        """The same in a coroutine."""
        return await asyncio.to_thread(self.hear)


def facts_of(error: BaseException) -> dict[str, Any]:
    """An error for the test: its kinds, its text and its facts."""
    facts = {name: getattr(error, name) for name in getattr(error, "facts", ())}
    for name in ("rank", "ranks", "host", "pid", "operation", "number", "group", "array_intact"):
        if hasattr(error, name):
            facts[name] = getattr(error, name)
    return {"kinds": [kind.__name__ for kind in type(error).__mro__], "text": str(error), "facts": facts}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "host"):
        return [value.rank, value.host, value.pid]
    return str(value)


def run_body(path: str, name: str) -> int:
    """Runs a test file's function as the rank that the environment says. Returns the exit status."""
    spec = importlib.util.spec_from_file_location("field_bodies", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["field_bodies"] = module
    spec.loader.exec_module(module)
    rank = Rank()
    try:
        value = getattr(module, name)(rank)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
    except Exception as error:
        rank.say("failed", trace=traceback.format_exc(), **facts_of(error))
        return 1
    rank.say("result", value=value)
    return 0


if __name__ == "__main__":
    sys.exit(run_body(*sys.argv[1:]))
