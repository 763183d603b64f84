"""Detects changes in the source files of an application."""

import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

# Folders without source of the application, which often have very many files.
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})
SUFFIX = ".py"

Snapshot = dict[str, tuple[int, int]]


def folders_of(app: str) -> list[Path]:
    """The source folders of `module:name`: the working folder, and the module's own if it is elsewhere."""
    here = Path.cwd()
    own = _folder_of(app.partition(":")[0].partition(".")[0])
    inside = own is None or own.is_relative_to(here) or _is_installed(own)
    return [here] if inside or own is None else [here, own]


def take_snapshot(folders: list[Path]) -> Snapshot:
    """Every source file below these folders, with its time and size."""
    found: Snapshot = {}
    for folder in folders:
        for file in _files_below(str(folder)):
            try:
                state = file.stat()
            except OSError:
                continue  # removed just now: the next snapshot shows that
            found[file.path] = state.st_mtime_ns, state.st_size
    return found


def changed_files(before: Snapshot, after: Snapshot) -> list[str]:
    """The files that were added, changed or removed between two snapshots."""
    return sorted(file for file in before.keys() | after.keys() if before.get(file) != after.get(file))


def _folder_of(name: str) -> Path | None:
    """The folder of a top-level module, found without importing it."""
    if not name.isidentifier():
        return None  # the worker reports the error
    spec = PathFinder.find_spec(name, [str(Path.cwd()), *sys.path])
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).resolve().parent


def _is_installed(folder: Path) -> bool:
    return bool(SKIPPED.intersection(folder.parts))


def _files_below(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # removed or unreadable, so it cannot be imported either
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return  # a virtual environment
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith(".") and entry.name not in SKIPPED:
                yield from _files_below(entry.path)
        elif entry.name.endswith(SUFFIX):
            yield entry
