"""A way to PostgreSQL that can hang: nothing is closed, and nothing comes through."""

import contextlib
import socket
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

CHUNK = 65_536


class Proxy:
    """Forwards bytes between a socket of its own and a server's, unless it hangs."""

    def __init__(self, url: str) -> None:
        parts = conninfo_to_dict(url)
        name = f".s.PGSQL.{parts.get('port', 5432)}"
        self._there = str(Path(str(parts["host"]), name))
        self._folder = TemporaryDirectory(prefix="proxy-", dir="/tmp")  # a socket needs a short path
        self._open = threading.Event()
        self._open.set()
        self._forsaken: list[threading.Event] = []
        self._sockets: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(Path(self._folder.name, name)))
        self._listening.listen(100)
        self.url = make_conninfo(url, host=self._folder.name)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        for gate in [self._open, *self._forsaken]:
            gate.set()
        for one in [self._listening, *self._sockets]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._folder.cleanup()

    def hang(self) -> None:
        """From now on nothing comes through, in either direction."""
        self._open.clear()

    def forsake(self) -> None:
        """What is connected now hangs for good; who connects from now on gets through."""
        self._open.clear()
        self._forsaken.append(self._open)
        self._open = threading.Event()
        self._open.set()

    def go_on(self) -> None:
        """All that was held back comes through, in its order, and what follows."""
        self._open.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed at the end
            while True:
                ours, _ = self._listening.accept()
                theirs = socket.socket(socket.AF_UNIX)
                theirs.connect(self._there)
                self._sockets += [ours, theirs]
                for one, other in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=_forward, args=(one, other, self._open), daemon=True).start()


def _forward(one: socket.socket, other: socket.socket, gate: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(CHUNK):
            gate.wait()
            other.sendall(data)
        gate.wait()
        other.shutdown(socket.SHUT_WR)
