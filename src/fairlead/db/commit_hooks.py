"""Calls within this process after a transaction has committed, by the words that it sent to listeners."""

from collections.abc import Callable, Iterable


class CommitHooks:
    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[[], object]]] = {}

    def add(self, word: str, hook: Callable[[], object]) -> None:
        """Call `hook` after each transaction that sent this word. It must not block or raise."""
        self._hooks.setdefault(word, []).append(hook)

    def run(self, words: Iterable[str]) -> None:
        """Call the hooks of these words."""
        for word in words:
            for hook in self._hooks.get(word, ()):
                hook()
