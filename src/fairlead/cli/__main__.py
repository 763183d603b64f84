"""`python -m fairlead.cli`: the same as `fairlead`."""

from fairlead.cli.root import main

main(prog_name="fairlead")
