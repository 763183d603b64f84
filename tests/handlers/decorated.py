"""A function that a child process can find behind its decorator."""

from fairlead import Fairlead, Settings

fl = Fairlead(settings=Settings())


@fl.job
def double(a: int) -> int:
    return a * 2
