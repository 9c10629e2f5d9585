"""Token-level mutants of plain PTX that mostly still assemble: a token is replaced by another of its kind.

Everything is a function of the text and the random generator.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cached_property

TOKEN = re.compile(r'"[^"]*"|0[fFdD][0-9a-fA-F]+|-?\d[\w.]*|[%$\w]+(?:\.[xyzw]\b)?|[^\s\w]')
DECLARED = re.compile(r"\.reg\s+\.(\w+)\s+([^;]*);")
NUMBERS = ["0", "1", "-1", "2", "3", "7", "15", "16", "31", "32", "33", "64", "255", "1024", "4096", "65536", "0x7fffffff", "0x80000000", "0xffffffff", "0x100000000", "0x7fffffffffffffff", "-9223372036854775808"]  # fmt: skip
FLOATS = ["00000000", "80000000", "3F800000", "7F800000", "FF800000", "7FC00000", "00000001", "7F7FFFFF", "FFFFFFFF"]
SPECIALS = ["%tid.x", "%ntid.x", "%ctaid.x", "%laneid", "%warpid", "%clock", "%smid"]
# Words of an opcode that often stand for each other.
CLASSES = [
    words.split()
    for words in (
        "eq ne lt le gt ge", "equ neu ltu leu gtu geu num nan", "s32 u32 b32 f32", "s64 u64 b64 f64", "s16 u16 b16 f16 bf16", "s8 u8 b8", "rn rz rm rp",
        "rni rzi rmi rpi", "lo hi wide", "and or xor", "add min max exch inc dec cas and or xor", "up down bfly idx", "all any uni", "v2 v4", "x1 x2 x4",
        "cta gpu sys cluster", "acquire release relaxed acq_rel", "ca cg cs cv", "shared global local const", "f16 bf16 tf32 e4m3 e5m2", "sat ftz approx full", "row col",
        "m8n8 m16n8k8 m16n8k16 m16n8k32", "1d 2d 3d 4d 5d", "inc dec", "l r clamp wrap", "aligned sync", "read trans nc volatile weak",
    )
]  # fmt: skip


class Source:
    """Plain PTX, one statement a line (as `isa.ptx` prints it), with what its mutants are made of."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.types: dict[str, str] = {}
        for kind, names in DECLARED.findall(text):
            for name in names.split(","):
                self.types[name.strip().partition("<")[0]] = kind
        self.code = [k for k, line in enumerate(self.lines) if re.match(r"\s+(@!?\S+ )?[a-z][\w.:]*[ ;]", line)]
        self.directives = [
            k for k, line in enumerate(self.lines) if re.match(r"\s*\.(reg|shared|local|reqntid|maxn)", line)
        ]

    def kind(self, token: str) -> str:
        """What may stand for a token: its declared type, `label`, `number`, `float`, or the token itself."""
        if token in self.types:
            return self.types[token]
        if token.rstrip("0123456789") in self.types:
            return self.types[token.rstrip("0123456789")]
        if re.match(r"0[fFdD]", token):
            return "float"
        if token.lstrip("-")[:1].isdigit():
            return "number"
        return "label" if f"{token}:" in self._stripped else token

    @cached_property
    def _stripped(self) -> frozenset[str]:
        return frozenset(line.strip() for line in self.lines)

    @cached_property
    def pools(self) -> dict[str, list[str]]:
        """Kind -> every token of it in the operands of the text."""
        found: dict[str, list[str]] = {}
        for k in self.code:
            for token in operands(self.lines[k]):
                found.setdefault(self.kind(token[0]), []).append(token[0])
        found["label"] = [line[:-1] for line in self._stripped if re.fullmatch(r"[\w$]+:", line)]
        for pool in found.values():
            pool.sort()
        return found

    @cached_property
    def opcodes(self) -> dict[tuple[str, ...], list[str]]:
        """Kinds of all tokens behind an opcode -> the opcodes that take them."""
        found: dict[tuple[str, ...], list[str]] = {}
        for k in self.code:
            found.setdefault(self.shape(self.lines[k]), []).append(split(self.lines[k])[1])
        return found

    def shape(self, line: str) -> tuple[str, ...]:
        """The kinds of a statement's operand tokens."""
        return tuple(self.kind(token) for token, _ in operands(line))


def split(line: str) -> tuple[str, str, str]:
    """Indent and guard, opcode, and the rest with its semicolon."""
    found = re.match(r"(\s*(?:@!?\S+ )?)([\w.:]+)(.*)$", line)
    return (found[1], found[2], found[3]) if found else ("", "", line)


def operands(line: str) -> list[tuple[str, int]]:
    """Tokens behind the opcode and where they start."""
    before, opcode, rest = split(line)
    return [(m[0], len(before) + len(opcode) + m.start()) for m in TOKEN.finditer(rest)]


def mutant(source: Source, rng: random.Random) -> str:
    """One text with one to three mutations."""
    lines = list(source.lines)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        change = rng.choices(OPERATORS, WEIGHTS)[0]
        at = rng.choice(source.directives if change is directive and source.directives else source.code)
        if lines[at].strip():
            change(source, lines, at, rng)
    return "\n".join(lines)


def operand(source: Source, lines: list[str], at: int, rng: random.Random) -> None:
    """Another token of its kind for an operand."""
    places = [(t, start) for t, start in operands(lines[at]) if t[0] in "%$" or t[0].isalnum() or t[0] == "-"]
    if not places:
        return
    token, start = rng.choice(places)
    lines[at] = lines[at][:start] + other(source, token, rng) + lines[at][start + len(token) :]


def other(source: Source, token: str, rng: random.Random) -> str:
    """A token of the same kind."""
    kind = source.kind(token)
    pool = source.pools.get(kind, [])
    if kind == "number" and (not pool or rng.random() < 0.6):
        if re.fullmatch(r"-?\d+", token) and rng.random() < 0.5:
            return str(
                rng.choice(
                    (int(token) + 1, int(token) - 1, int(token) * 2, -int(token), int(token) // 2, int(token) ^ 8)
                )
            )
        return rng.choice(NUMBERS)
    if kind == "float":
        return f"0f{rng.choice(FLOATS)}" if token[1] in "fF" else f"0d{rng.choice(FLOATS)}00000000"
    return rng.choice(pool or SPECIALS) if token[0] != "%" or rng.random() < 0.98 else rng.choice(SPECIALS)


def opcode(source: Source, lines: list[str], at: int, rng: random.Random) -> None:
    """The opcode of another statement with operands of the same kinds."""
    before, _, rest = split(lines[at])
    known = source.opcodes.get(source.shape(lines[at]))
    if known:
        lines[at] = before + rng.choice(known) + rest


def qualifier(source: Source, lines: list[str], at: int, rng: random.Random) -> None:
    """Another word of its class in an opcode; sometimes one more, or one less."""
    before, spelled, rest = split(lines[at])
    base, *words = spelled.split(".")
    swaps = [(k, group) for k, word in enumerate(words) for group in CLASSES if word in group]
    roll = rng.random()
    if roll < 0.9 and swaps:
        k, group = rng.choice(swaps)
        words[k] = rng.choice(group)
    elif roll < 0.95 and words:
        words.pop(rng.randrange(len(words)))
    else:
        words.insert(rng.randint(0, len(words)), rng.choice(rng.choice(CLASSES)))
    lines[at] = before + ".".join([base, *words]) + rest


def guard(source: Source, lines: list[str], at: int, rng: random.Random) -> None:
    """Take the guard away, negate it, or put one there."""
    found = re.match(r"(\s*)@(!?)(\S+) (.*)$", lines[at])
    predicates = source.pools.get("pred", [])
    if found and rng.random() < 0.7:
        negated = "" if found[2] else "!"
        lines[at] = rng.choice((f"{found[1]}{found[4]}", f"{found[1]}@{negated}{found[3]} {found[4]}"))
    elif predicates:
        body = found[4] if found else lines[at].lstrip()
        lines[at] = f"\t@{rng.choice(('', '!'))}{rng.choice(predicates)} {body}"


def swap(source: Source, lines: list[str], at: int, rng: random.Random) -> None:
    """Exchange two statements, near ones as a rule."""
    here = source.code.index(at)
    near = max(0, min(len(source.code) - 1, here + rng.randint(-4, 4)))
    to = source.code[near] if rng.random() < 0.7 else rng.choice(source.code)
    lines[at], lines[to] = lines[to], lines[at]


def delete(source: Source, lines: list[str], at: int, rng: random.Random) -> None:
    """Drop a statement."""
    lines[at] = ""


def double(source: Source, lines: list[str], at: int, rng: random.Random) -> None:
    """Repeat a statement in place of another."""
    lines[rng.choice(source.code)] = lines[at]


def directive(source: Source, lines: list[str], at: int, rng: random.Random) -> None:
    """Another number in a declaration."""
    numbers = list(re.finditer(r"(?<![\w%.])\d+|(?<=<)\d+", lines[at]))
    if numbers:
        chosen = rng.choice(numbers)
        value = rng.choice((0, 1, 8, 33, int(chosen[0]) * 2, int(chosen[0]) + 1, int(chosen[0]) // 2, 1 << 20))
        lines[at] = lines[at][: chosen.start()] + str(value) + lines[at][chosen.end() :]


def junk(source: Source, lines: list[str], at: int, rng: random.Random) -> None:
    """Take a token out or put one in, anywhere in the line."""
    tokens = list(TOKEN.finditer(lines[at]))
    chosen = rng.choice(tokens)
    piece = rng.choice(
        ("", ",", ";", "{", "}", "[", "]", "-", "!", "@", "|", ":", "0", "%r0", "ret", '"', chosen[0] * 2)
    )
    lines[at] = lines[at][: chosen.start()] + piece + lines[at][chosen.end() :]


Operator = Callable[[Source, list[str], int, random.Random], None]
OPERATORS: tuple[Operator, ...] = (operand, opcode, qualifier, guard, swap, delete, double, directive, junk)
WEIGHTS = (44, 8, 8, 9, 12, 7, 5, 4, 3)
