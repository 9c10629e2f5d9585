"""Short spellings of the assembler layer, declared beside the instruction that they stand for.

    @shorthand("mbarrier.wait")
    def wait(instr: Instr, fresh: Fresh) -> str:
        '''mbarrier.wait [bar], parity;'''
        bar, parity = operands(instr, 2, "mbarrier.wait [bar], parity;")
        return f"{{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, {text(bar)}, {text(parity)}; ... }}"

A name that ends in a dot (`"tma.load."`) matches every opcode that starts with it; the longest
name wins.  The function gets the instruction with its operands evaluated and returns either PTX
text (any statements; usually one instruction or one `{ }` block) or finished statements.  Text may
use other short spellings, but nothing else of the assembler layer.

The expander does the rest: every statement of the text gets the author's position and role, and a
guard of the short spelling guards the single instruction that it became, or branches around
several.  `fresh("WAIT")` returns a label that occurs nowhere else; a `{ }` block, whose labels
and registers are local, is usually simpler.  `text(operand)` prints an operand as PTX.
"""

from __future__ import annotations

from collections.abc import Callable

from isa.errors import AssemblyError, Diagnostic
from isa.ptx import operand_text as text
from isa.syntax import Instr, Operand, Stmt

Fresh = Callable[[str], str]
Shorthand = Callable[[Instr, Fresh], str | tuple[Stmt, ...]]

SHORTHANDS: dict[str, Shorthand] = {}

__all__ = ["SHORTHANDS", "Fresh", "Shorthand", "find", "operands", "reject", "shorthand", "text"]


def shorthand(*names: str) -> Callable[[Shorthand], Shorthand]:
    """Declare the function that expands the short spellings `names`; a name can be declared once."""

    def wrap(function: Shorthand) -> Shorthand:
        for name in names:
            if name in SHORTHANDS:
                raise ValueError(f"short spelling {name} is declared twice")
            SHORTHANDS[name] = function
        return function

    return wrap


def find(opcode: str) -> Shorthand | None:
    """The short spelling that `opcode` uses, or None when it is an ordinary instruction."""
    if opcode in SHORTHANDS:
        return SHORTHANDS[opcode]
    prefixes = [name for name in SHORTHANDS if name.endswith(".") and opcode.startswith(name)]
    return SHORTHANDS[max(prefixes, key=len)] if prefixes else None


def reject(instr: Instr, message: str, hint: str = "") -> AssemblyError:
    """The error to raise when a short spelling is written wrongly, at the author's line."""
    return AssemblyError([Diagnostic(instr.pos, message, hint)])


def operands(instr: Instr, count: int, form: str) -> tuple[Operand, ...]:
    """The operands when there are exactly `count`; otherwise an error that quotes `form`."""
    if len(instr.operands) != count:
        found = len(instr.operands)
        raise reject(instr, f"'{instr.opcode}' takes {count} operands, found {found}", f"write {form}")
    return instr.operands
