"""What a place's network gives without any library: one TCP connection, a round trip of 64 bytes and one way in bulk.

    python reference.py serve ADDRESS          says its port, then answers one connection after the other
    python reference.py ask ADDRESS PORT       prints two rows, as JSON lines

`run.py` has both run on the hosts of a place, in every round, and keeps the rows beside those of the systems.
"""

import json
import mmap
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from places import Site

REFERENCE = "tcp"
"""Stands for the system in these rows."""
ROUND_TRIP, ONE_WAY = ("round_trip", 64), ("one_way", 64 << 20)
"""Operation and size of the rows; the time of one way is given for so many bytes, however many were sent."""
_LIMIT_S = 20.0
_ROUND_TRIPS, _ROUND_TRIPS_S = 1000, 0.5
_WARM_S, _SEND_S = 0.2, 0.6
_PIECE_NBYTES = 1 << 20
_PING, _BULK = b"p", b"b"


def measure_reference(site: Site) -> list[dict[str, Any]]:
    """Both rows of a place, between its first two hosts, or on the one that it has. Empty where it fails."""
    program, last = [sys.executable, str(Path(__file__).resolve())], min(1, site.place.hosts - 1)
    pipe = subprocess.PIPE
    server = subprocess.Popen([*site.prefix(0), *program, "serve", site.address(0)], stdout=pipe, text=True)
    try:
        assert server.stdout is not None
        command = [*site.prefix(last), *program, "ask", site.address(0), server.stdout.readline().strip()]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return []
    finally:
        server.terminate()
        server.communicate()
    return [json.loads(line) for line in asked.stdout.splitlines()]


def _tune(link: socket.socket) -> None:
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    except OSError:  # not to be had here: then as the kernel has it
        return


def _piece() -> mmap.mmap:
    """Page-aligned memory, which sockets fill fastest."""
    return mmap.mmap(-1, _PIECE_NBYTES)


def serve(address: str) -> None:
    """Answers round trips, and takes what is sent in bulk, until it is ended."""
    with socket.create_server((address, 0)) as door:
        print(door.getsockname()[1], flush=True)
        while True:
            link, _ = door.accept()
            with link:
                _tune(link)
                {_PING: _echo, _BULK: _swallow}[link.recv(1)](link)


def _echo(link: socket.socket) -> None:
    while word := link.recv(ROUND_TRIP[1]):
        link.sendall(word)


def _swallow(link: socket.socket) -> None:
    """Takes all; answers with the bytes, and the seconds they took, that came after the warming up."""
    piece, taken, warm, start_s, now_s = memoryview(_piece()), 0, 0, time.perf_counter(), 0.0
    begin_s = start_s
    while nbytes := link.recv_into(piece):
        now_s = time.perf_counter()
        taken += nbytes
        if now_s - begin_s < _WARM_S:
            start_s, warm = now_s, taken
    link.sendall(json.dumps([taken - warm, now_s - start_s]).encode())


def ask(address: str, port: int) -> None:
    """Measures, and prints the rows."""
    print(json.dumps(_ask_round_trip(address, port)))
    print(json.dumps(_ask_one_way(address, port)))


def _ask_round_trip(address: str, port: int) -> dict[str, Any]:
    found: list[float] = []
    end_s = time.perf_counter() + _ROUND_TRIPS_S
    with socket.create_connection((address, port)) as link:
        _tune(link)
        link.sendall(_PING)
        while len(found) < _ROUND_TRIPS and time.perf_counter() < end_s:
            start_s, left = time.perf_counter(), ROUND_TRIP[1]
            link.sendall(bytes(ROUND_TRIP[1]))
            while left:
                left -= len(link.recv(left))
            found.append((time.perf_counter() - start_s) * 1e6)
    found = sorted(found[len(found) // 10 :])  # without the first ones
    return _row(ROUND_TRIP, len(found), statistics.median(found), found[len(found) * 99 // 100])


def _ask_one_way(address: str, port: int) -> dict[str, Any]:
    end_s, piece = time.perf_counter() + _WARM_S + _SEND_S, _piece()
    with socket.create_connection((address, port)) as link:
        _tune(link)
        link.sendall(_BULK)
        while time.perf_counter() < end_s:
            link.sendall(piece)
        link.shutdown(socket.SHUT_WR)
        taken, took_s = json.loads(link.recv(100))
    took_us = took_s / taken * ONE_WAY[1] * 1e6
    return _row(ONE_WAY, taken // _PIECE_NBYTES, took_us, took_us)


def _row(case: tuple[str, int], calls: int, median_us: float, p99_us: float) -> dict[str, Any]:
    return {
        "op": case[0],
        "nbytes": case[1],
        "calls": calls,
        "median_us": round(median_us, 2),
        "p99_us": round(p99_us, 2),
    }


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        ask(sys.argv[2], int(sys.argv[3]))
