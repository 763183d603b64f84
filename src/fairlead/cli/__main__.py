"""`python -m fairlead.cli`: the same as `fairlead`."""

from fairlead.cli.start import main

main("fairlead")
