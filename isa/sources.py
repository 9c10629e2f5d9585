"""The files of one program: parsed once, found for includes, quoted in diagnostics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from isa import tree
from isa.errors import AssemblyError, Diagnostic, nearest
from isa.parser import parse
from isa.syntax import Pos


class Sources:
    """The main text, which need not be a file, and everything that it includes."""

    def __init__(self, text: str, file: str, search_path: Iterable[str | Path]) -> None:
        self.search_path = [Path(place) for place in search_path]
        self.main = parse(text, file)
        self.parsed = {file: self.main}

    def places(self, file: str) -> list[Path]:
        """Where an include of `file` is looked for, in order."""
        return [Path(file).parent, *self.search_path]

    def find(self, include: str, file: str) -> str:
        """The file that `file` means by `include`, or an empty string."""
        return next((str(place / include) for place in self.places(file) if (place / include).is_file()), "")

    def load(self, path: str) -> tree.Source:
        """The parsed file; raises AssemblyError for its syntax errors."""
        if path not in self.parsed:
            self.parsed[path] = parse(Path(path).read_text(encoding="utf-8"), path)
        return self.parsed[path]

    def quoted(self, diagnostic: Diagnostic) -> Diagnostic:
        """`diagnostic` with the author's line, for the caret."""
        source = self.parsed.get(diagnostic.pos.file)
        if diagnostic.source or source is None or not 0 < diagnostic.pos.line <= len(source.lines):
            return diagnostic
        return replace(diagnostic, source=source.lines[diagnostic.pos.line - 1])

    def check_defines(self, given: Iterable[str]) -> None:
        """Every given define must be one of the program or of a file that it includes."""
        unknown = set(given)
        if not unknown:
            return
        known: dict[str, None] = {}
        waiting, seen = [self.main], {self.main.file}
        while waiting:
            current = waiting.pop()
            for raw in tree.walk(current.body):
                if isinstance(raw, tree.Define):
                    known[raw.name] = None
                elif isinstance(raw, tree.Include) and (path := self.find(raw.path, current.file)) not in seen:
                    seen.add(path)
                    waiting += [self.load(path)] if path else []
        listed = f"the program's defines: {', '.join(known) or 'none'}"
        findings = [
            Diagnostic(Pos(self.main.file, 0, 0), f"the program has no define '{name}'", nearest(name, known) or listed)
            for name in sorted(unknown - known.keys())
        ]
        if findings:
            raise AssemblyError(findings)
