"""The command line.  Nothing heavy is imported before a command runs: `--help` stays instant.

Results go to stdout, errors to stderr; `EXIT_CODES` says what the exit code means.
"""

from __future__ import annotations

import codecs
import contextlib
import difflib
import importlib
import io
import os
import sys
from collections.abc import Sequence

import rich_click as click

INTERNAL_ERROR = 70
BROKEN_PIPE = 141  # what a shell reports for a program that SIGPIPE ended
EXIT_CODES = {
    0: "clean",
    1: "findings, or numbers that differ from the reference",
    2: "usage, assembly or file error",
    3: "deadlock or livelock",
    4: "instructions that are not implemented",
    5: "limit reached (--max-cycles)",
    6: "fault in the program",
    INTERNAL_ERROR: "internal error",
    130: "interrupted",
    BROKEN_PIPE: "nobody reads the output any more",
}
EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."
ASCII = str.maketrans({"─": "-", "━": "=", "│": "|", "┃": "|", "…": ".", "×": "x", "µ": "u"})

COMMANDS = {
    "run": "Run a shipped program or a kernel file on an emulated machine.",
    "compare": "Attention programs on several machines side by side, and what one of them loses.",
    "asm": "Assemble a shipped program or a file: registers, shared memory, micro-operations, or the errors.",
    "ptx": "Expand a shipped program or a file to plain PTX.",
    "explain": "Explain a word: an instruction, stall reason, pipe, parameter, program, define, machine or finding.",
    "machine": "List, show, compare and check machine files.",
}


class LazyGroup(click.RichGroup):
    """Commands by name; lists show stubs, and a command's module is imported only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return click.RichCommand(name=cmd_name, help=COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"no command '{args[0]}'." + (f" did you mean '{near[0]}'?" if near else ""))
        return args[0], importlib.import_module(f"emu.commands.{args[0]}").command, args[1:]


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="warpsmith", prog_name="warpsmith")
def cli() -> None:
    """A cycle-level emulator of NVIDIA streaming multiprocessors that assembles and runs PTX."""


def execute(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; every expected error is printed, none escapes."""
    try:
        code = cli.main(list(args) if args is not None else None, prog_name="warpsmith", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        return 130
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # what click makes of a broken pipe
            return _failed(error.__context__)
        raise
    except Exception as error:  # noqa: BLE001 - the last resort: everything becomes an exit code
        return _failed(error)


def _failed(error: Exception) -> int:
    """An error that carries an exit code is the user's and is shown as it is; anything else is ours."""
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        print(error, file=sys.stderr)
        return code
    if isinstance(error, OSError):
        return _io_failed(error)
    if isinstance(error, MemoryError):
        print(f"warpsmith: not enough memory: {error}", file=sys.stderr)
        return 2
    import traceback

    traceback.print_exc()
    print("warpsmith: internal error, please report the lines above", file=sys.stderr)
    return INTERNAL_ERROR


def _io_failed(error: OSError) -> int:
    """A file that cannot be used, or an output that takes no more (without a name: the disk, the pipe)."""
    if not error.filename:
        _silence_stdout()
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    print(f"{error.filename or 'warpsmith'}: {error.strerror or error}", file=sys.stderr)
    return 2


def _silence_stdout() -> None:
    """Send what stdout still holds to nowhere, so that the interpreter's last flush does not fail again."""
    with contextlib.suppress(io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _ascii(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler for an output that is not UTF-8: lines of tables in ASCII, else `?`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(ASCII)
    return "".join(c if c.isascii() else "?" for c in text), error.end


def main() -> None:
    """Entry point of the `warpsmith` command."""
    codecs.register_error("warpsmith.ascii", _ascii)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="warpsmith.ascii")
    sys.exit(execute())


if __name__ == "__main__":
    main()
