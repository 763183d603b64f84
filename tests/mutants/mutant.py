"""A mutant: a small change of the source that breaks a promise, and what is expected to see it."""

from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
SOURCE = Path("src", "fairlead")


class MutantDoesNotApply(Exception):
    """The source has changed: the text that a mutant replaces is not there exactly once."""


class Edit(msgspec.Struct, frozen=True):
    """Replaces a text that a file below src/fairlead has exactly once."""

    file: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Change the file in this tree."""
        path = root / SOURCE / self.file
        path.write_text(self.change(path.read_text()))

    def change(self, text: str) -> str:
        """The changed text of the file."""
        if (found := text.count(self.old)) != 1:
            raise MutantDoesNotApply(
                f"{self.file} has this text {found} times instead of once: {self.old.strip()[:200]!r}. "
                "Adapt the mutant to the source."
            )
        return text.replace(self.old, self.new)


class Suite(msgspec.Struct, frozen=True):
    """Tests of the ordinary suite, by their ids."""

    tests: tuple[str, ...]


class Interleavings(msgspec.Struct, frozen=True):
    """Scenarios of tests/interleavings, which step statements through all their interleavings."""

    scenarios: tuple[str, ...]


class Chaos(msgspec.Struct, frozen=True):
    """A run of `fairlead chaos` and the checks of its history."""

    seed: int
    seconds: int
    # the kinds of faults; none means all
    kinds: tuple[str, ...] = ()
    # other options of the command
    options: tuple[str, ...] = ()
    # changes of the load, such as more jobs of a rare kind; the unchanged tree is run with them, too
    load: tuple[Edit, ...] = ()


Catcher = Suite | Interleavings | Chaos


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """A wrong version of the protocol."""

    name: str
    # of DESIGN.md, such as I4
    breaks: tuple[str, ...]
    # what is wrong with it, in a sentence
    wrong: str
    # what it replaces
    file: str
    old: str
    new: str
    more: tuple[Edit, ...] = ()
    # tried in this order until one of them sees the mutant
    catchers: tuple[Catcher, ...]
    # the findings of a chaos run that show it, one or more of them; a run with others only has not seen it
    findings: tuple[str, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        return (Edit(self.file, self.old, self.new), *self.more)

    def apply(self, root: Path) -> None:
        """Change the source in this tree."""
        for edit in self.edits:
            edit.apply(root)
