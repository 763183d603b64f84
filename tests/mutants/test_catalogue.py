"""Every mutant still applies to the source, and what is expected to see it is there. `make mutants` runs them."""

import re
from collections import Counter

import pytest

from fairlead.chaos.checks.check_run import MEANINGS
from fairlead.chaos.faults.kinds import choose_kinds
from tests.interleavings.mutants import SCENARIOS
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import (
    ROOT,
    SOURCE,
    Catcher,
    Chaos,
    Edit,
    Interleavings,
    Mutant,
    MutantDoesNotApply,
    Suite,
)
from tests.tables import each_case

PROMISES = {f"I{number}" for number in range(1, 20)}


@each_case("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_its_catchers_exist(mutant: Mutant) -> None:
    texts = _apply(mutant)
    for file, text in texts.items():
        assert text != (ROOT / SOURCE / file).read_text()
        if file.endswith(".py"):
            compile(text, file, "exec")
    assert [what for catcher in mutant.catchers for what in _list_missing(catcher)] == []
    assert mutant.catchers
    assert set(MEANINGS).issuperset(mutant.findings)
    assert mutant.findings or not any(isinstance(catcher, Chaos) for catcher in mutant.catchers)
    assert PROMISES.issuperset(mutant.breaks)
    assert mutant.breaks
    assert re.fullmatch(r"[a-z][a-z0-9_]*", mutant.name)
    assert mutant.wrong.endswith(".")


def _apply(mutant: Mutant) -> dict[str, str]:
    """The files that it changes, as it leaves them."""
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        texts[edit.file] = edit.change(texts.get(edit.file) or (ROOT / SOURCE / edit.file).read_text())
    return texts


def _list_missing(catcher: Catcher) -> list[str]:
    """Tests and scenarios that do not exist; refuses a run whose kinds of faults or changes of the load do not."""
    match catcher:
        case Suite(tests):
            return [one for one in tests if not _exists(one)]
        case Interleavings(scenarios):
            return [one for one in scenarios if one not in SCENARIOS]
        case Chaos():
            choose_kinds(catcher.kinds)
            texts: dict[str, str] = {}
            for edit in catcher.load:
                text = texts.get(edit.file) or (ROOT / SOURCE / edit.file).read_text()
                texts[edit.file] = edit.change(text)
            return []


def _exists(test: str) -> bool:
    """Whether there is such a file or folder and, in it, a test of that name."""
    file, _, name = test.partition("::")
    place = ROOT / file
    return place.exists() and (not name or f"def {name.partition('[')[0]}(" in place.read_text())


def test_there_are_enough_mutants_and_no_two_are_the_same() -> None:
    names = Counter(mutant.name for mutant in MUTANTS)
    by_change: dict[frozenset[tuple[str, str]], list[str]] = {}
    for mutant in MUTANTS:
        by_change.setdefault(frozenset(_apply(mutant).items()), []).append(mutant.name)

    assert len(names) >= 30
    assert [name for name, number in names.items() if number > 1] == []
    assert [twins for twins in by_change.values() if len(twins) > 1] == []


@each_case("text", ["", "wait; wait;"])
def test_a_mutant_that_does_not_apply_exactly_once_is_an_error(text: str) -> None:
    with pytest.raises(MutantDoesNotApply, match=r"store/queue\.sql has this text \d times"):
        Edit("store/queue.sql", "wait;", "go on;").change(text)
