"""The program: `fairlead`, or `python -m fairlead.cli`."""

import gc

from fairlead.cli.root import main as run_command


def main(prog_name: str | None = None) -> None:
    """Run a command. The garbage collector rests until its modules are imported: they stay, and took a quarter of the start."""
    gc.disable()
    run_command(prog_name=prog_name)
