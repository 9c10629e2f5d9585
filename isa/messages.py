"""Syntax errors in plain words: what was found, what was expected, what to do."""

from __future__ import annotations

import re

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from isa.errors import nearest
from isa.tree import At

PUNCTUATION = {
    "SEMICOLON": ";", "COMMA": ",", "LPAR": "(", "RPAR": ")", "LSQB": "[", "RSQB": "]", "LBRACE": "{",
    "RBRACE": "}", "EQUAL": "=", "MORETHAN": ">", "COLON": ":", "IN": "in",
}  # fmt: skip
DIRECTIVES = (
    ".version", ".target", ".address_size", ".entry", ".func", ".visible", ".extern", ".reg", ".shared", ".global", ".const",
    ".local", ".param", ".align", ".pragma", ".define", ".let", ".assert", ".include", ".for", ".if", ".elif", ".else",
    ".macro", ".role", ".maxntid", ".reqntid", ".maxnreg", ".minnctapersm", ".branchtargets",
)  # fmt: skip
# What a set of acceptable tokens means to a person, most general first.
KINDS = (
    ("GUARD", "a statement"),
    ("INT", "an operand"),
    ("NAME", "a name"),
    ("DIRECTIVE", "a directive"),
    ("STRING", 'a string in "quotes"'),
    ("VERSION", "a version such as 9.0"),
    ("SPACE", "'.entry', '.shared' or another state space"),
)


def explain(error: UnexpectedInput, text: str) -> tuple[At, str, str]:
    """Place, message and hint for a syntax error of the parser."""
    at = (error.line, error.column)
    if error.pos_in_stream is not None and text.startswith("/*", error.pos_in_stream):
        return at, "the comment is not closed", "add */"
    if isinstance(error, UnexpectedToken):
        return _token(error, text)
    if isinstance(error, UnexpectedCharacters):
        if error.char == '"':
            return at, "the string is not closed on its line", 'add the closing "'
        shown = error.char if error.char.isprintable() else f"\\x{ord(error.char):02x}"
        binary = text.startswith("\x7fELF") or "\0" in text
        return at, f"unexpected character '{shown}'", "this is not a text file" if binary else ""
    return at, "the text cannot be read", ""


def _token(error: UnexpectedToken, text: str) -> tuple[At, str, str]:
    token, state = error.token, error.state
    accepted: set[str] = InteractiveParser(None, state, state.lexer).accepts()  # type: ignore[no-untyped-call]
    stack = [item for item in state.value_stack if isinstance(item, Token)]
    expected = _words(accepted)
    if token.type == "$END":
        return _end(stack, text, expected)
    at = (token.line or 1, token.column or 1)
    glued = re.search(r"(?<![\w%$.])\d\w*$", text.splitlines()[at[0] - 1][: at[1] - 1])
    if glued and re.match(r"\w", token):  # 0xZZ, 0f3F8, 12ab
        hint = "integers are 42, 0x2A or 0b101010, floats 1.5, 0f and 8 or 0d and 16 hexadecimal digits"
        return (at[0], glued.start() + 1), f"'{glued[0]}{token}' is no number", hint
    end = _code_end(text, at[0])
    if "SEMICOLON" in accepted and end[0] < at[0] and not text.splitlines()[at[0] - 1][: at[1] - 1].strip():
        return end, "expected ';' at the end of the statement", _spelling(stack)
    if token == "}" and not any(item.type == "LBRACE" for item in stack):
        return at, "'}' closes nothing", "remove it, or look for a missing '{' above"
    return at, f"expected {expected}, found '{token}'", _hint(token, stack)


def _end(stack: list[Token], text: str, expected: str) -> tuple[At, str, str]:
    opened = [item for item in stack if item.type in ("LBRACE", "LPAR", "LSQB")]
    if opened:
        last = opened[-1]
        return (last.line or 1, last.column or 1), f"'{last}' is not closed before the end of the file", ""
    return _code_end(text, len(text.splitlines()) + 1), f"expected {expected}, found the end of the file", ""


def _words(accepted: set[str]) -> str:
    """`',', ';' or an operand`"""
    openers = {"LPAR", "LSQB", "LBRACE"} if accepted & {"INT", "GUARD"} else set()
    operators = {"MORETHAN"} if "SEMICOLON" in accepted else set()
    known = [f"'{mark}'" for name, mark in PUNCTUATION.items() if name in accepted - openers - operators]
    known += [words for name, words in KINDS if name in accepted][:1]
    if not known:
        return "the end of the expression"
    return known[0] if len(known) == 1 else ", ".join(known[:-1]) + " or " + known[-1]


def _hint(token: Token, stack: list[Token]) -> str:
    if token == "=" and stack and stack[-1].type == "NAME":
        return f"write .let {stack[-1]} = ..."
    if token.type in ("DIRECTIVE", "SPACE", "LINKAGE"):
        return _spelling(stack) or (nearest(str(token), DIRECTIVES) if token not in DIRECTIVES else "")
    return _spelling(stack)


def _spelling(stack: list[Token]) -> str:
    """Perhaps the statement began with a directive that does not exist."""
    words = [item for item in stack if item.type == "DIRECTIVE"]
    if words and words[-1] not in DIRECTIVES:
        return nearest(str(words[-1]), DIRECTIVES)
    return ""


def _code_end(text: str, line: int) -> At:
    """Just behind the last code before `line` (whole-line comments and blank lines are skipped)."""
    lines = text.splitlines()
    for number in range(min(line - 1, len(lines)), 0, -1):
        code = lines[number - 1].split("//")[0].rstrip()
        if code:
            return number, len(code) + 1
    return 1, 1
