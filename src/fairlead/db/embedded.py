"""A private PostgreSQL for `fairlead dev` and for tests, shared by all processes that use its data folder.

A data folder holds `postgres` (the cluster), `socket`, `postgres.log`, and two lock files: only the
holder of `postgres.lock` starts or stops the server, and every process that uses the server holds a
shared lock on `postgres.users`, so the kernel counts them. If root's server user cannot enter the
data folder, cluster and socket are in the system folder and `postgres.cluster` holds their name.
"""

import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from fairlead.db.binaries import (
    Binaries,
    choose_server_user,
    ensure_system_folder,
    ensure_usable,
    find_binaries,
    hold_lock,
    is_last,
    make_open_folder,
    open_private,
    release_share,
    require_posix,
    same_file,
    system_path,
    take_share,
)
from fairlead.db.cluster import Cluster, Postmaster, sync_folder
from fairlead.errors import EmbeddedFailed, EmbeddedUnavailable

__all__ = ["Binaries", "EmbeddedPostgres", "find_binaries"]

# Clusters of data folders that the server's user cannot enter


def _locate_cluster(data_dir: Path) -> Cluster:
    """Find the cluster of a data folder, which may not exist yet."""
    user = choose_server_user()
    if (data_dir / "postgres.cluster").exists():
        cluster = Cluster(_find_place(data_dir))
    elif (data_dir / "postgres").exists() or user.can_enter(data_dir):
        cluster = Cluster(data_dir)
    else:
        cluster = Cluster(_create_place(data_dir, ensure_system_folder("clusters", user)))
    if user.dropped and (system_path() / "clusters").is_dir():
        _prune(system_path() / "clusters")
    return cluster


def _create_place(data_dir: Path, clusters: Path) -> Path:
    with hold_lock(clusters / ".lock"):
        place = clusters / secrets.token_hex(8)
        make_open_folder(place)
        _write_atomically(place / "origin", os.fsencode(data_dir))
        _write_atomically(data_dir / "postgres.cluster", place.name.encode())
    return place


def _find_place(data_dir: Path) -> Path:
    """The folder of the cluster that a data folder names; a moved data folder keeps its cluster, a copied one does not."""
    name = (data_dir / "postgres.cluster").read_text("utf-8").strip()
    place = system_path() / "clusters" / name
    if not re.fullmatch(r"[0-9a-f]{16}", name) or not place.is_dir():
        raise EmbeddedFailed(
            f"The database of {data_dir} should be in {place}, but is missing. Set FAIRLEAD_SYSTEM_DIR as before, "
            f"or restore that folder, or delete {data_dir / 'postgres.cluster'} to start with an empty database."
        )
    with hold_lock(place.parent / ".lock"):
        origin = _read_origin(place)
        if origin not in (None, data_dir) and _is_named(place):
            raise EmbeddedFailed(
                f"{data_dir} is a copy of {origin} and would share its database. "
                f"Delete {data_dir / 'postgres.cluster'} to start with an empty one."
            )
        _write_atomically(place / "origin", os.fsencode(data_dir))
    return place


def _prune(clusters: Path) -> None:
    """Remove the clusters whose data folder is gone or names another cluster."""
    with hold_lock(clusters / ".lock"):
        for place in clusters.iterdir():
            if place.is_dir() and not _is_named(place) and not (cluster := Cluster(place)).running():
                cluster.remove_socket_folder()
                shutil.rmtree(place)


def _read_origin(place: Path) -> Path | None:
    try:
        return Path(os.fsdecode((place / "origin").read_bytes()))
    except FileNotFoundError:
        return None


def _is_named(place: Path) -> bool:
    """Whether the data folder of a cluster still names it; True if we cannot read it."""
    origin = _read_origin(place)
    try:
        return origin is not None and (origin / "postgres.cluster").read_text("utf-8") == place.name
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _write_atomically(file: Path, content: bytes) -> None:
    new = file.with_name(f".{file.name}.new")
    fd = open_private(new, os.O_TRUNC)
    with os.fdopen(fd, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(fd)
    new.replace(file)
    sync_folder(file.parent)


class EmbeddedPostgres:
    """One process's use of the server of a data folder."""

    def __init__(
        self, data_dir: Path, *, binaries: Binaries | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._data_dir = data_dir.resolve()
        self._binaries = binaries
        self._settings = dict(settings or {})
        self._share: int | None = None
        self._cluster: Cluster | None = None
        self._server: Postmaster | None = None
        self.joined = False

    @property
    def url(self) -> str:
        """Where clients connect: database `fairlead` through the private socket."""
        return self._require_started().url

    @property
    def pid(self) -> int:
        """The postmaster's pid."""
        return self._require_started().pid

    def start(self) -> str:
        """Start the server, or join it if it runs already (`joined`). Its URL."""
        require_posix()
        if "\n" in str(self._data_dir):
            raise EmbeddedFailed(
                "PostgreSQL cannot use a folder with a line break in its path. Choose another."
            )
        try:
            self._data_dir.mkdir(mode=0o755 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
            with hold_lock(self._data_dir / "postgres.lock"):
                self._server = self._join()
        except OSError as error:
            raise EmbeddedFailed(
                f"The data folder {self._data_dir} cannot be used: {error}. "
                "Choose one that you may write to, on a disk with space."
            ) from error
        return self.url

    def stop(self) -> bool:
        """Leave; the last process to leave stops the server. True if this process stopped it."""
        if self._share is None:
            return False
        if not same_file(self._share, self._data_dir / "postgres.users"):
            return self._leave()  # the folder was deleted: no process can join, and there is no lock to hold
        with hold_lock(self._data_dir / "postgres.lock"):
            return self._leave()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _require_started(self) -> Postmaster:
        if self._server is None:
            raise EmbeddedFailed("The embedded PostgreSQL is not started. Call start() first.")
        return self._server

    def _join(self) -> Postmaster:
        users = self._data_dir / "postgres.users"
        if self._share is not None and not same_file(self._share, users):
            release_share(self._share)
            self._share = None
        if self._share is None:
            self._share = take_share(users)
        try:
            return self._start_cluster()
        except BaseException:
            self._leave()
            raise

    def _start_cluster(self) -> Postmaster:
        if self._cluster is not None:
            self._cluster.reap()
        cluster = self._cluster = _locate_cluster(self._data_dir)
        server = cluster.running()
        self.joined = cluster.is_ready(server)
        if server is not None and self.joined:
            return server
        binaries = ensure_usable(cluster.user, self._choose_binaries(cluster.major))
        if cluster.major is None:
            cluster.create(binaries)
        return cluster.ensure_running(binaries, self._settings, self._data_dir / "postgres.log")

    def _choose_binaries(self, major: int | None) -> Binaries:
        binaries = self._binaries or find_binaries(major)
        if major not in (None, binaries.major):
            raise EmbeddedUnavailable(
                f"{self._data_dir} holds a database of PostgreSQL {major}, but {binaries.bin} is PostgreSQL "
                f"{binaries.major}. Use PostgreSQL {major}, or choose another data folder."
            )
        return binaries

    def _leave(self) -> bool:
        share, self._share = self._share, None
        server, self._server = self._server, None
        if share is None or self._cluster is None:
            return False
        try:
            return is_last(share) and self._halt(self._cluster, share, server)
        finally:
            release_share(share)

    def _halt(self, cluster: Cluster, share: int, server: Postmaster | None) -> bool:
        """Stop the folder's server; if the folder was replaced, stop only the server that we joined."""
        if not same_file(share, self._data_dir / "postgres.users"):
            return server is not None and cluster.halt(server.pid)
        current = cluster.running()
        stopped = current is not None and cluster.halt(current.pid)
        if stopped:
            cluster.remove_socket_folder()
        return stopped
