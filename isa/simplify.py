"""What `ptxas` does for nothing: constants and copies are propagated, constant operations folded,
unused pure operations dropped.

Works on 32-bit words of virtual registers (`word`): a 64-bit register has two, so packing and
unpacking halves vanishes too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isa.cfg import Graph, dominates, graph, immediate_dominators
from isa.code import Code, MicroOp, half
from isa.registry import Const, Half, NotPred, ParamWord, PredConst, VReg

COPIES = frozenset(("MOV", "PLOP3.MOV"))  # `isa.ops.move`, `isa.ops.logic`


@dataclass(frozen=True, slots=True)
class RowPair:
    """A 64-bit source that is two constant rows."""

    lo: Const | ParamWord
    hi: Const | ParamWord


def words(value: Any) -> tuple[int, ...]:
    """The register words that an operand names: 2 id, and 2 id + 1 for the high half."""
    match value:
        case VReg(id, "d"):
            return (2 * id, 2 * id + 1)
        case VReg(id, _) | NotPred(VReg(id, _)):
            return (2 * id,)
        case Half(VReg(id, _), index):
            return (2 * id + index,)
        case tuple():
            return tuple(w for item in value for w in words(item))
        case _:
            return ()


def source_words(op: MicroOp) -> tuple[int, ...]:
    """Words that an operation reads, the guard included."""
    return words((*op.sources, op.guard))


def accumulates(op: MicroOp) -> bool:
    """Whether the result list is read too: wgmma adds to it unless scale-d is constantly false."""
    if op.micro.unit != "wgmma_mma":
        return False
    scale = op.sources[op.micro.sources.index("p")]
    return not (isinstance(scale, PredConst) and not scale.value)


def pure(op: MicroOp) -> bool:
    """Whether an operation without used results can go."""
    return op.micro.is_lane or op.micro.unit in ("s2r", "mma", "movmatrix")


def simplify(code: Code) -> None:
    """Propagate, fold, drop, and end where a branch would only lead to the end, in place."""
    _Simplifier(code).run()
    for op in code.ops:
        if op.micro.unit == "bra" and op.label is not None:
            target = code.labels[op.label]
            if target < len(code.ops) and code.ops[target].micro.unit == "exit" and code.ops[target].guard is None:
                op.micro, op.label = code.ops[target].micro, None  # ptxas: @P EXIT, so these lanes are gone at once


class _Simplifier:
    def __init__(self, code: Code) -> None:
        self.code = code
        self.defined: dict[int, int] = {}  # word -> the only operation that defines it, -1 for several
        self.definitions: dict[int, list[int]] = {}
        self.used: dict[int, list[int]] = {}
        for i, op in enumerate(code.ops):
            for w in words(op.results):
                self.defined[w] = -1 if w in self.defined else i
                self.definitions.setdefault(w, []).append(i)
            for w in source_words(op):
                self.used.setdefault(w, []).append(i)
        self.value: dict[int, Any] = {}  # word -> what stands for it
        self.gone: set[int] = set()
        self._flow: tuple[Graph, list[int]] | None = None

    def run(self) -> None:
        changed = True
        while changed:
            known = len(self.value)
            for i in range(len(self.code.ops)):
                if i not in self.gone:
                    self._visit(i)
            changed = len(self.value) != known
        self._drop_unused()
        self.code.drop(self.gone)

    def _visit(self, i: int) -> None:
        op = self.code.ops[i]
        op.sources = tuple(self._rewrite(s) for s in op.sources)
        op.guard = self._rewrite(op.guard)
        if isinstance(op.guard, PredConst):
            if not op.guard.value:
                self.gone.add(i)
                return
            op.guard = None
        if op.micro.is_lane:
            self._learn(i, op)

    def _learn(self, i: int, op: MicroOp) -> None:
        """Record what an operation's result equals, when it is the only definition.

        A guard does not matter for constants: where it is false the result is undefined anyway.
        """
        defined = words(op.results)
        if len(defined) == 1 and self.defined[defined[0]] < 0 and op.micro.name in COPIES:
            return self._learn_repeated(defined[0], op.sources[0])
        if not defined or any(self.defined[w] != i or w in self.value for w in defined):
            return
        if op.micro.name in COPIES:
            parts = [op.sources[0]] if len(defined) == 1 else _halves(op.sources[0])
            for w, source in zip(defined, parts, strict=True):
                if isinstance(source, Const | ParamWord | PredConst) or self._safe_copy(i, w, words(source)[0]):
                    self.value[w] = source
        elif all(isinstance(s, Const | PredConst | RowPair) for s in op.sources):
            self._fold(op)

    def _learn_repeated(self, word: int, source: Any) -> None:
        """A word with several definitions that all copy one constant (or the word itself) to it is that constant."""
        if word in self.value or not isinstance(source, Const | PredConst):
            return
        for i in self.definitions[word]:
            op = self.code.ops[i]
            if op.micro.name not in COPIES or op.sources[0] != source and words(op.sources[0]) != (word,):
                return
        self.value[word] = source

    def _fold(self, op: MicroOp) -> None:
        """Evaluate an operation on constants."""
        given = iter(op.sources)
        values = [op.imm if letter == "i" else _bits(next(given)) for letter in op.micro.sources]
        if op.micro.meaning is None or any(v is None for v in values):
            return
        found = op.micro.meaning(*values)
        for letter, result, bits in zip(
            op.micro.results, op.results, found if isinstance(found, tuple) else (found,), strict=True
        ):
            for n, w in enumerate(words(result)):
                self.value[w] = PredConst(bool(bits)) if letter == "p" else Const((int(bits) >> 32 * n) & 0xFFFFFFFF)

    def _safe_copy(self, i: int, target: int, source: int) -> bool:
        """Whether uses of `target` may read `source`: its definition dominates the copy, the copy all uses."""
        origin = self.defined.get(source, -1)
        if origin < 0 or any(self.code.ops[k].guard is not None for k in (origin, i)):
            return False
        return self._dominates(origin, i) and all(self._dominates(i, use) for use in self.used.get(target, ()))

    def _dominates(self, a: int, b: int) -> bool:
        if self._flow is None:
            g = graph(self.code.ops, self.code.labels)
            self._flow = (g, immediate_dominators(g))
        g, idom = self._flow
        block_a, block_b = g.block_of[a], g.block_of[b]
        return a < b if block_a == block_b else dominates(idom, block_a, block_b)

    def _rewrite(self, value: Any) -> Any:
        """An operand with its words replaced as far as they are known."""
        match value:
            case tuple():
                return tuple(self._rewrite(v) for v in value)
            case NotPred(reg):
                found = self._rewrite(reg)
                return negated(found)
            case VReg(_, "d"):
                lo, hi = (self._rewrite(half(value, n)) for n in (0, 1))
                if isinstance(lo, Const | ParamWord) and isinstance(hi, Const | ParamWord):
                    return RowPair(lo, hi)
                if isinstance(lo, Half) and hi == Half(lo.reg, 1) and lo.index == 0:
                    return lo.reg
                return value
            case VReg() | Half():
                found = self.value.get(words(value)[0])
                return value if found is None else self._rewrite(found)
            case Const(_, "d") | ParamWord(_, "d"):
                return RowPair(half(value, 0), half(value, 1))  # type: ignore[arg-type]
            case _:
                return value

    def _drop_unused(self) -> None:
        uses: dict[int, int] = {}
        alive = [i for i in range(len(self.code.ops)) if i not in self.gone]
        for i in alive:
            for w in _reads(self.code.ops[i]):
                uses[w] = uses.get(w, 0) + 1
        changed = True
        while changed:
            changed = False
            for i in reversed(alive):
                op = self.code.ops[i]
                if i in self.gone or not pure(op) or any(uses.get(w) for w in words(op.results)):
                    continue
                self.gone.add(i)
                changed = True
                for w in _reads(op):
                    uses[w] -= 1


def _reads(op: MicroOp) -> tuple[int, ...]:
    return source_words(op) + (words(op.results) if accumulates(op) else ())


def negated(value: Any) -> Any:
    """`!value` of a predicate operand."""
    match value:
        case PredConst(v):
            return PredConst(not v)
        case NotPred(reg):
            return reg
        case _:
            return NotPred(value)


def _halves(value: Any) -> list[Any]:
    return [value.lo, value.hi] if isinstance(value, RowPair) else [half(value, 0), half(value, 1)]


def _bits(value: Any) -> int | bool | None:
    """The Python value that a micro-operation's meaning takes, None for parameter words."""
    match value:
        case Const(bits) | PredConst(bits):
            return bits
        case RowPair(Const(lo), Const(hi)):
            return lo | hi << 32
        case _:
            return None
