"""Text -> raw tree: an LALR parser whose reductions build the nodes of `isa.tree` directly."""

from __future__ import annotations

import functools
import math
import re
import struct
from importlib.resources import files
from typing import Any

from lark import Lark, Token
from lark.exceptions import UnexpectedInput

from isa import tree
from isa.errors import AssemblyError, Diagnostic
from isa.messages import explain
from isa.syntax import Addr, Float, Int, Pos, Reg, Sink, Str, Vec
from isa.tree import At, Expr, Spelling

# Binding strength of binary operators, as in C.
STRENGTH = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
_SPLICE = re.compile(r"\{([^{}]*)\}")
_REGISTER = re.compile(r"%[\w$]+")


def parse(text: str, file: str) -> tree.Source:
    """Parse PTX or mini-PTX; raises AssemblyError with the place, what was expected and a remedy."""
    text = text.removeprefix("\ufeff")  # the mark that some editors put in front of UTF-8
    body = _run(text, "module", file, text, (1, 1))
    return tree.Source(file, tuple(body), text.splitlines())


def _run(text: str, start: str, file: str, whole: str, origin: At) -> Any:
    """Parse `text`, which stands at `origin` in the text `whole` of `file`."""
    parser, builder = _machinery()
    outer = builder.file, builder.whole, builder.origin
    builder.file, builder.whole, builder.origin = file, whole, origin
    try:
        return parser.parse(text, start=start)
    except UnexpectedInput as error:
        (line, col), message, hint = explain(error, text)
        pos = Pos(file, *_shift((line, col), origin))
        raise AssemblyError([Diagnostic(pos, message, hint, _line(whole, pos.line))]) from None
    finally:
        builder.file, builder.whole, builder.origin = outer


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1] if 0 < number <= len(lines) else ""


def _shift(at: At, origin: At) -> At:
    line, col = at
    return (line + origin[0] - 1, col + origin[1] - 1 if line == 1 else col)


@functools.cache
def _machinery() -> tuple[Lark, _Builder]:
    """The parser and its builder, made on first use (a tenth of a second)."""
    builder = _Builder()
    parser = Lark(
        files("isa").joinpath("grammar.lark").read_text(),
        parser="lalr",
        lexer="contextual",
        start=["module", "expr"],
        keep_all_tokens=True,
        maybe_placeholders=False,
        transformer=builder,
    )
    return parser, builder


def _text(token: Token) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1])


class _Builder:
    """One method a rule of the grammar; `children` include every token."""

    def __init__(self) -> None:
        self.file = ""
        self.whole = ""
        self.origin: At = (1, 1)

    def at(self, token: Token) -> At:
        return _shift((token.line or 1, token.column or 1), self.origin)

    def spelling(self, token: Token, text: str | None = None, shift: int = 0) -> Spelling:
        """The text of a token, or a Word when values are spliced into it."""
        text = str(token) if text is None else text
        if "{" not in text:
            return text
        line, col = self.at(token)
        parts: list[str | Expr] = []
        end = 0
        for found in _SPLICE.finditer(text):
            inner = (line, col + shift + found.start(1))
            parts += [text[end : found.start()], _run(found[1], "expr", self.file, self.whole, inner)]
            end = found.end()
        return tree.Word(tuple(p for p in [*parts, text[end:]] if p != ""), (line, col))

    def finding(self, token: Token, message: str, hint: str = "") -> list[Diagnostic]:
        pos = Pos(self.file, *self.at(token))
        return [Diagnostic(pos, message, hint, _line(self.whole, pos.line))]

    def identifier(self, token: Token) -> str:
        """A name of the assembler layer: letters, digits, `_` and `$`."""
        if not re.fullmatch(r"[\w$]+", token) or token == "_":
            raise AssemblyError(self.finding(token, f"'{token}' is not a name", "use letters, digits and _"))
        return str(token)

    # ---- lists ----

    def none(self, children: list[Any]) -> list[Any]:
        return []

    def first(self, children: list[Any]) -> list[Any]:
        return children

    def more(self, children: list[Any]) -> list[Any]:
        items: list[Any] = children[0]
        items.append(children[2])
        return items

    def append(self, children: list[Any]) -> list[Any]:
        items: list[Any] = children[0]
        items.append(children[1])
        return items

    def module(self, children: list[Any]) -> list[Any]:
        items: list[Any] = children[0]
        return items

    # ---- statements ----

    def instr(self, children: list[Any]) -> tree.RawInstr:
        token = children[0]
        operands = tuple(children[1]) if len(children) == 3 else ()
        return tree.RawInstr(self.spelling(token), operands, None, self.at(token))

    def guarded(self, children: list[Any]) -> tree.RawInstr:
        guard, token = children[0], children[1]
        operands = tuple(children[2]) if len(children) == 4 else ()
        text = guard[1:].lstrip()
        negated = text.startswith("!")
        text = text.lstrip("! \t\r\n")
        register = self.spelling(guard, text, len(guard) - len(text))
        return tree.RawInstr(self.spelling(token), operands, (register, negated), self.at(guard))

    def label(self, children: list[Any]) -> tree.RawLabel:
        token = children[0]
        return tree.RawLabel(self.spelling(token, token[:-1].rstrip()), self.at(token))

    def block(self, children: list[Any]) -> tree.RawBlock:
        return tree.RawBlock(tuple(children[1]), self.at(children[0]))

    def declaration(self, children: list[Any]) -> tree.Declaration:
        linkage = str(children.pop(0))[1:] if children[0].type == "LINKAGE" else ""
        token, words, names = children[:3]
        return tree.Declaration(linkage, token[1:], tuple(words), tuple(names), self.at(token))

    def param(self, children: list[Any]) -> tree.Declaration:
        token, words, name = children
        return tree.Declaration("", token[1:], tuple(words), (name,), self.at(token))

    def params(self, children: list[Any]) -> tuple[tree.Declaration, ...]:
        return tuple(child for child in children if isinstance(child, tree.Declaration))

    def word(self, children: list[Any]) -> list[Any]:
        token = children[1]
        return [*children[0], self.spelling(token, token[1:], 1)]

    def attribute(self, children: list[Any]) -> list[Any]:
        """`.managed` memory is like any other here."""
        return list(children[0])

    def align(self, children: list[Any]) -> list[Any]:
        return [*children[0], ("align", children[2])]

    def declarator(self, children: list[Any]) -> tree.Declarator:
        token = children[0]
        many = init = None
        dims: list[Expr | None] = []
        for mark, value in zip(children[1:], [*children[2:], None], strict=False):
            if isinstance(mark, Token) and mark == "<":
                many = value
            elif isinstance(mark, Token) and mark == "=":
                init = value
            elif isinstance(mark, tuple):
                dims += mark
        return tree.Declarator(self.spelling(token), many, tuple(dims), init, self.at(token))

    def dim(self, children: list[Any]) -> tuple[Expr | None]:
        return (children[1] if len(children) == 3 else None,)

    def kernel(self, children: list[Any]) -> tree.RawKernel:
        linkage = str(children[0])[1:] if children[0].type == "LINKAGE" else ""
        name = next(c for c in children if isinstance(c, Token) and c.type == "NAME")
        params = next((c for c in children if isinstance(c, tuple)), ())
        performance = tuple(c for c in children if isinstance(c, tree.RawDirective))
        return tree.RawKernel(linkage, self.spelling(name), params, performance, children[-1], self.at(name))

    def function(self, children: list[Any]) -> tree.RawFunction:
        linkage = str(children[0])[1:] if children[0].type == "LINKAGE" else ""
        at = next(k for k, c in enumerate(children) if isinstance(c, Token) and c.type == "NAME")
        results = next((c for c in children[:at] if isinstance(c, tuple)), ())
        params = next((c for c in children[at:] if isinstance(c, tuple)), ())
        body = children[-1] if isinstance(children[-1], tree.RawBlock) else None
        name = children[at]
        return tree.RawFunction(linkage, self.spelling(name), results, params, body, self.at(name))

    def prototype(self, children: list[Any]) -> tree.RawDirective:
        return tree.RawDirective("callprototype", (), self.at(children[0]))

    def directive(self, children: list[Any]) -> tree.RawDirective:
        token = children[0]
        args = next((tuple(c) for c in children if isinstance(c, list)), ())
        return tree.RawDirective(self.spelling(token, token[1:], 1), args, self.at(token))

    def header(self, children: list[Any]) -> tree.Header:
        token, value = children[0], children[1]
        # `.target sm_90a, debug`: only the architecture matters here.
        shown = value[0] if isinstance(value, list) else value
        text = shown.name if isinstance(shown, tree.Name) else str(shown)
        return tree.Header(token[1:], text, self.at(token))

    # ---- the assembler layer ----

    def define(self, children: list[Any]) -> tree.Define:
        return tree.Define(self.identifier(children[1]), children[3], self.at(children[1]))

    def let(self, children: list[Any]) -> tree.Let:
        return tree.Let(self.identifier(children[1]), children[3], self.at(children[1]))

    def assertion(self, children: list[Any]) -> tree.Assert:
        message = next((_text(c) for c in children[2:] if isinstance(c, Token) and c.type == "STRING"), "")
        return tree.Assert(children[1], message, self.at(children[0]))

    def include(self, children: list[Any]) -> tree.Include:
        return tree.Include(_text(children[1]), self.at(children[1]))

    def role(self, children: list[Any]) -> tree.Role:
        return tree.Role(_text(children[1]), self.at(children[0]))

    def loop(self, children: list[Any]) -> tree.For:
        return tree.For(self.identifier(children[1]), children[3], children[4], self.at(children[0]))

    def conditional(self, children: list[Any]) -> tree.If:
        arms = ((children[1], children[2]), *children[3:])
        return tree.If(arms, self.at(children[0]))

    def elseif(self, children: list[Any]) -> tuple[Expr | None, tree.RawBlock]:
        return (children[1], children[2])

    def otherwise(self, children: list[Any]) -> tuple[Expr | None, tree.RawBlock]:
        return (None, children[1])

    def macro(self, children: list[Any]) -> tree.Macro:
        name = children[1]
        params = tuple(c for c in children if isinstance(c, tuple))
        return tree.Macro(self.identifier(name), params, children[-1], self.at(name))

    def macro_param(self, children: list[Any]) -> tuple[str, Expr | None]:
        return (self.identifier(children[0]), children[2] if len(children) == 3 else None)

    # ---- operands and expressions ----

    def reg(self, children: list[Any]) -> Expr:
        token = children[0]
        return Reg(str(token)) if "{" not in token else self._word(token)

    def _word(self, token: Token) -> tree.Word:
        word = self.spelling(token)
        assert isinstance(word, tree.Word)
        return word

    def name(self, children: list[Any]) -> Expr:
        token = children[0]
        if token == "_":
            return Sink()
        return tree.Name(str(token), self.at(token)) if "{" not in token else self._word(token)

    def integer(self, children: list[Any]) -> Int:
        digits = children[0].rstrip("U")
        octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
        try:
            return Int(int(digits, 8 if octal else 0))
        except ValueError:
            hint = "a leading 0 means octal: remove it for a decimal number"
            raise AssemblyError(self.finding(children[0], f"'{digits}' is not a number", hint)) from None

    def floating(self, children: list[Any]) -> Float:
        text = children[0]
        if text[1:2] in ("f", "F", "d", "D"):
            return float_of_bits(bytes.fromhex(text[2:]))
        return Float(float(text))

    def string(self, children: list[Any]) -> Str:
        return Str(_text(children[0]))

    def registers(self, children: list[Any]) -> Vec:
        return Vec(tuple(map(Reg, _REGISTER.findall(children[0]))))

    def vector(self, children: list[Any]) -> tree.Vector:
        return tree.Vector(tuple(children[1]), self.at(children[0]))

    def span(self, children: list[Any]) -> tree.Range:
        return tree.Range(children[0], children[2], self.at(children[1]))

    def address(self, children: list[Any]) -> Expr:
        base = children[1]
        if len(children) == 3:
            if isinstance(base, Reg):
                return Addr(base)
            match base:
                case tree.Binary("+", Reg() as left, Int(value)):
                    return Addr(left, value)
                case tree.Binary("-", Reg() as left, Int(value)):
                    return Addr(left, -value)
        return tree.Address(base, children[3] if len(children) == 5 else None, self.at(children[0]))

    def call(self, children: list[Any]) -> tree.Call:
        return tree.Call(str(children[0]), children[1].items, self.at(children[0]))

    def group(self, children: list[Any]) -> tree.Group:
        return tree.Group(tuple(children[1]) if len(children) == 3 else (), self.at(children[0]))

    def unary(self, children: list[Any]) -> Expr:
        sign, item = children
        if isinstance(item, Int) and sign in "+-":
            return Int(-item.value) if sign == "-" else item
        return tree.Unary(str(sign), item, self.at(sign))

    def choice(self, children: list[Any]) -> tree.Choice:
        return tree.Choice(children[0], children[2], children[4], self.at(children[1]))

    def flat(self, children: list[Any]) -> list[Any]:
        return children

    def flat_more(self, children: list[Any]) -> list[Any]:
        items: list[Any] = children[0]
        return items + children[1:]

    def resolve(self, children: list[Any]) -> Expr:
        """`a op b op c ...` by binding strength, left to right among equals."""
        values: list[Any] = []
        pending: list[Token] = []

        def reduce(strength: int) -> None:
            while pending and STRENGTH[pending[-1]] >= strength:
                op, right, left = pending.pop(), values.pop(), values.pop()
                values.append(tree.Binary(str(op), left, right, self.at(op)))

        for index, item in enumerate(children[0]):
            if index % 2:
                reduce(STRENGTH[item])
                pending.append(item)
            else:
                values.append(item)
        reduce(0)
        result: Expr = values[0]
        return result


def float_of_bits(digits: bytes) -> Float:
    """The constant of 4 or 8 bytes, most significant first, as `0f` and `0d` spell it."""
    value: float = struct.unpack(">f" if len(digits) == 4 else ">d", digits)[0]
    # One NaN object, so that equal constants compare equal.
    return Float(math.nan if math.isnan(value) else value, int.from_bytes(digits, "big"), 8 * len(digits))
