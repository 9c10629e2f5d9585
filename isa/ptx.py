"""Print a module as plain PTX text that `ptxas` accepts, from the tree alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from isa.syntax import (
    Addr,
    Block,
    Directive,
    Float,
    Function,
    Guard,
    Instr,
    Int,
    Kernel,
    Label,
    Module,
    Neg,
    Not,
    Operand,
    Pair,
    Param,
    Reg,
    RegDecl,
    Sink,
    Stmt,
    Str,
    Sym,
    TensorAddr,
    VarDecl,
    Vec,
)


def to_ptx(module: Module, *, comments: bool = True) -> str:
    """`module` as PTX text; with `comments`, defines and roles appear as comments.

    Reading the text again gives the same tree apart from positions and roles.
    """
    return "\n".join(_Printer(comments).module(module)) + "\n"


def operand_text(operand: Operand) -> str:
    """One operand as PTX spells it: `%r1`, `[%rd1+16]`, `{%r0, %r1}`, `0f3F800000`."""
    match operand:
        case Reg(name):
            return name
        case Sym(name, offset):
            return f"{name}{_offset(offset)}"
        case Int(value):
            return str(value)
        case Float():
            return _float(operand)
        case Addr(base, offset):
            return f"[{operand_text(base)}{_offset(offset)}]"
        case TensorAddr(base, coords, offset):
            return f"[{operand_text(base)}{_offset(offset)}, {operand_text(coords)}]"
        case Vec(items):
            return "{" + ", ".join(map(operand_text, items)) + "}"
        case Not(item):
            return "!" + operand_text(item)
        case Neg(item):
            return "-" + operand_text(item)
        case Pair(first, second):
            return f"{operand_text(first)}|{operand_text(second)}"
        case Sink():
            return "_"
        case Str(value):
            return f'"{value}"'
        case _:
            assert_never(operand)


def guard_text(guard: Guard | None) -> str:
    """`@%p1 ` or `@!%p1 ` with a space behind it, or nothing."""
    return f"@{'!' if guard.negated else ''}{guard.reg} " if guard else ""


def instr_text(instr: Instr) -> str:
    """One instruction with its guard and semicolon."""
    operands = ", ".join(map(operand_text, instr.operands))
    if instr.opcode.split(".")[0] == "call":
        operands = operands.replace("{", "(").replace("}", ")")
    return f"{guard_text(instr.guard)}{instr.opcode}{' ' if operands else ''}{operands};"


def _offset(offset: int) -> str:
    # The form `+-16` is what compilers write; `-16` alone is not in the PTX grammar.
    return f"+{offset}" if offset else ""


def _float(constant: Float) -> str:
    if constant.bits is None:
        return repr(constant.value)
    return f"0f{constant.bits:08X}" if constant.width == 32 else f"0d{constant.bits:016X}"


def _type(type: str) -> str:
    return " ".join(f".{part}" for part in type.split("."))


class _Printer:
    """Prints line by line; remembers the role of the last printed instruction."""

    def __init__(self, comments: bool) -> None:
        self.comments = comments
        self.role = ""

    def module(self, module: Module) -> Iterator[str]:
        if self.comments and module.defines:
            for name, value in module.defines.items():
                yield f"// {name} = {value}"
            yield ""
        yield f".version {module.version}"
        yield f".target {module.target}"
        yield f".address_size {module.address_size}"
        yield ""
        for item in module.items:
            if isinstance(item, Kernel):
                yield from self.kernel(item)
            elif isinstance(item, Function):
                yield from self.function(item)
            else:
                yield from self.statement(item, "")

    def kernel(self, kernel: Kernel) -> Iterator[str]:
        self.role = ""
        yield ""
        linkage = f".{kernel.linkage} " if kernel.linkage else ""
        params = ",\n".join(f"\t{self.param(param)}" for param in kernel.params)
        yield f"{linkage}.entry {kernel.name}(" + (f"\n{params}\n)" if params else ")")
        for name, values in kernel.performance:
            yield f".{name} {', '.join(map(str, values))}".rstrip()
        yield "{"
        for statement in kernel.body:
            yield from self.statement(statement, "\t")
        yield "}"

    def function(self, function: Function) -> Iterator[str]:
        self.role = ""
        yield ""
        linkage = f".{function.linkage} " if function.linkage else ""
        results, params = (
            f"({', '.join(map(self.param, p))})" if p else "" for p in (function.results, function.params)
        )
        yield f"{linkage}.func {results} {function.name}{params}{';' if function.body is None else ''}"
        if function.body is not None:
            yield "{"
            for statement in function.body:
                yield from self.statement(statement, "\t")
            yield "}"

    def param(self, param: Param) -> str:
        attributes = " ".join(f".{word}" for word in param.attributes)
        if param.count is None:
            return " ".join(filter(None, (".param", _type(param.type), attributes, param.name)))
        return f".param .align {param.align} {_type(param.type)} {param.name}[{param.count}]"

    def statement(self, statement: Stmt, indent: str) -> Iterator[str]:
        match statement:
            case Instr():
                if statement.role != self.role:
                    self.role = statement.role
                    if self.comments:
                        yield f"{indent}// role: {self.role or '(none)'}"
                yield indent + instr_text(statement)
            case Label(name):
                yield f"{indent[1:]}{name}:"
            case RegDecl(type, names):
                spelled = ", ".join(name if count is None else f"{name}<{count}>" for name, count in names)
                yield f"{indent}.reg {_type(type)} {spelled};"
            case VarDecl():
                yield indent + self.variable(statement)
            case Block(body):
                yield indent + "{"
                for inner in body:
                    yield from self.statement(inner, indent + "\t")
                yield indent + "}"
            case Directive(name, args):
                yield f"{indent}.{name} {', '.join(map(operand_text, args))}".rstrip() + ";"
            case _:
                assert_never(statement)

    def variable(self, variable: VarDecl) -> str:
        linkage = f".{variable.linkage} " if variable.linkage else ""
        count = "" if variable.count is None else variable.count
        if variable.space == "param" and variable.count == 1 and not variable.type.endswith("8"):
            return f".param {_type(variable.type)} {variable.name};"  # ptxas: no array where a scalar is passed
        init = " = {" + ", ".join(map(operand_text, variable.init)) + "}" if variable.init else ""
        kind = f".{variable.space} .align {variable.align} {_type(variable.type)}"
        return f"{linkage}{kind} {variable.name}[{count}]{init};"
