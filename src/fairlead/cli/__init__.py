"""The command line."""

from fairlead.cli.root import main

__all__ = ["main"]
