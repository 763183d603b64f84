"""A scratch copy of this tree with an environment of its own, which imports the copy."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fairlead.db import scratch
from tests.mutants.mutant import ROOT, SOURCE, Edit

# Everything that tests read.
COPIED = ("src", "tests", "clients", "docs", "examples", "pyproject.toml", "README.md", "CHANGELOG.md")
LEFT_OUT = shutil.ignore_patterns("node_modules", ".pytest_cache")
# Ends all processes of a command with it: a chaos run that is killed would leave its servers, clients and workers.
CONTAINED = ROOT / "tests" / "contained.py"
# It gives the command time to end by itself, then PostgreSQL.
END_SECONDS = 90.0
EDITABLE = "_editable_impl_fairlead.pth"


class ScratchTree:
    """A copy of the tree, and its Python."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        self.python = folder / "venv" / "bin" / "python"

    def run(
        self, argv: Sequence[str], *, seconds: float, variables: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run the copy's Python with these arguments. Whatever it has started ends with it, also after a timeout."""
        process = subprocess.Popen(
            [sys.executable, str(CONTAINED), str(self.python), *argv],
            cwd=self.root,
            env=self._environment(os.environ) | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        with process:
            try:
                output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.terminate()
                output, _ = _end(process)
                return subprocess.CompletedProcess(argv, -1, f"{output}\ndid not end in {seconds:.0f} s")
        return subprocess.CompletedProcess(argv, process.returncode, output)

    @contextmanager
    def changed(self, edits: Sequence[Edit]) -> Iterator[None]:
        """The tree with these changes during the block."""
        before = {edit.file: (self.root / SOURCE / edit.file).read_text() for edit in edits}
        for edit in edits:
            edit.apply(self.root)
        try:
            yield
        finally:
            for file, text in before.items():
                (self.root / SOURCE / file).write_text(text)

    def _environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        left_out = {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "VIRTUAL_ENV", "FAIRLEAD_DATABASE_URL", "TMPDIR"}
        kept = {name: value for name, value in ours.items() if name not in left_out}
        return kept | {"PATH": f"{self.python.parent}:{ours.get('PATH', '')}"}


def _end(process: "subprocess.Popen[str]") -> tuple[str, str]:
    try:
        return process.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


@contextmanager
def scratch_tree() -> Iterator[ScratchTree]:
    """A copy of this tree, removed afterwards."""
    with scratch.scratch_folder() as folder:
        tree = ScratchTree(folder)
        for name in COPIED:
            place = ROOT / name
            if place.is_dir():
                shutil.copytree(place, tree.root / name, ignore=LEFT_OUT)
            else:
                tree.root.mkdir(exist_ok=True)
                shutil.copy2(place, tree.root / name)
        _make_environment(tree)
        yield tree


def _make_environment(tree: ScratchTree) -> None:
    """An environment with the packages of this one, but with the copy's `fairlead`: for every process, whatever its variables."""
    environment = tree.python.parents[1]
    packages = Path(sysconfig.get_path("purelib"))
    theirs = environment / packages.relative_to(sys.prefix)
    theirs.mkdir(parents=True)
    tree.python.parent.mkdir()
    shutil.copy2(Path(sys.prefix, "pyvenv.cfg"), environment)
    tree.python.symlink_to(Path(sys.executable).resolve())
    for name in ("python3", f"python3.{sys.version_info.minor}"):
        (tree.python.parent / name).symlink_to("python")
    for one in packages.iterdir():
        if one.name != EDITABLE:
            (theirs / one.name).symlink_to(one)
    (theirs / EDITABLE).write_text(f"{tree.root / 'src'}\n")
    _write_programs(tree)


def _write_programs(tree: ScratchTree) -> None:
    """Programs of this environment, which name its Python."""
    for one in (Path(sys.prefix) / "bin").iterdir():
        if one.name.startswith(("python", "activate", "Activate")) or one.is_symlink():
            continue
        head = one.read_bytes()[:200]
        if head.startswith(f"#!{sys.prefix}".encode()):
            target = tree.python.parent / one.name
            target.write_text(one.read_text().replace(sys.prefix, str(tree.python.parents[1])))
            target.chmod(0o755)
        else:
            (tree.python.parent / one.name).symlink_to(one)
