"""Errors that a program's author sees: file, line, column, the line with a caret, and a remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field

from isa.syntax import Pos


@dataclass(frozen=True)
class Diagnostic:
    """One finding of the assembler.

    `message` says what is wrong, `hint` what to do, `source` is the author's line (without the
    newline) so that a caret can be drawn under `pos.col`.
    """

    pos: Pos
    message: str
    hint: str = ""
    source: str = ""

    def render(self) -> str:
        """`file:line:col: error: message`, the line, a caret, the hint, the call sites."""
        lines = [f"{self.pos}: error: {self.message}"]
        if self.source:
            pad = "".join("\t" if c == "\t" else " " for c in self.source[: self.pos.col - 1])
            lines += [f"  {self.source}", f"  {pad}^"]
        if self.hint:
            lines.append(f"  help: {self.hint}")
        lines += [f"  in the expansion at {site}" for site in self.pos.via]
        return "\n".join(lines)


@dataclass
class AssemblyError(Exception):
    """The program cannot be assembled; `exit_code` is what the command line returns.

    A finding that every round of a `.for` repeats is kept once.
    """

    diagnostics: list[Diagnostic] = field(default_factory=list)
    exit_code: int = 2

    def __post_init__(self) -> None:
        self.diagnostics = list(dict.fromkeys(self.diagnostics))

    def __str__(self) -> str:
        return "\n".join(d.render() for d in self.diagnostics)


class UnsupportedError(AssemblyError):
    """The program is PTX but uses instructions that are not implemented; all of them are listed."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__(diagnostics, exit_code=4)


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` for the closest known spelling, or an empty string when none is near."""
    spellings = list(known)
    swapped = {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(len(word) - 1)}
    close = [k for k in spellings if k in swapped]
    close += [k for k in difflib.get_close_matches(word, spellings, n=3, cutoff=0.6) if _near(word, k)]
    return f"did you mean '{close[0]}'?" if close else ""


def _near(word: str, other: str) -> bool:
    """Whether a slip of the fingers separates two words: a third of the letters, or an ending."""
    if min(len(word), len(other)) > 2 and (word.startswith(other) or other.startswith(word)):
        return True
    row = list(range(len(other) + 1))  # edits from what is read of `word` to each beginning of `other`
    for i, letter in enumerate(word, 1):
        before, row[0] = row[0], i
        for j, theirs in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (letter != theirs))
    return row[-1] <= max(1, len(word) // 3)
