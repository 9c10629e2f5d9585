"""Marked blocks of a page, whose content a tool writes.

<!-- begin NAME -->
...
<!-- end NAME -->
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- begin (?P<name>[\w-]+) -->\n).*?(<!-- end (?P=name) -->)", re.DOTALL)


def names(text: str) -> list[str]:
    """The blocks of a page, in order."""
    return [found["name"] for found in BLOCK.finditer(text)]


def content(text: str, name: str) -> str:
    """What block `name` of a page holds now; KeyError when there is no such block."""
    for found in BLOCK.finditer(text):
        if found["name"] == name:
            return found[0][len(found[1]) : -len(found[3])]
    raise KeyError(f"no block {name}")


def replace(text: str, contents: Mapping[str, str]) -> str:
    """The page with new contents for the blocks in `contents`; KeyError when one of them is missing."""
    if missing := set(contents) - set(names(text)):
        raise KeyError(f"no block {', '.join(sorted(missing))}")

    def fill(found: re.Match[str]) -> str:
        if found["name"] not in contents:
            return found[0]
        return f"{found[1]}{contents[found['name']].strip()}\n{found[3]}"

    return BLOCK.sub(fill, text)


def update(path: Path, contents: Mapping[str, str]) -> bool:
    """Write new contents into a page; whether it changed."""
    before = path.read_text()
    after = replace(before, contents)
    if after != before:
        path.write_text(after)
    return after != before


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table; columns behind the first `left` ones are right-aligned."""
    rule = ["---" if k < left else "---:" for k in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))
