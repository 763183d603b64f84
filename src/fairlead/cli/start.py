"""The program: `fairlead`, or `python -m fairlead.cli`."""

import gc

from fairlead.cli.root import main as run_command


def main(prog_name: str | None = None) -> None:
    """Run a command. Garbage collection is off during its imports: it took a quarter of the start-up time."""
    gc.disable()
    run_command(prog_name=prog_name)
