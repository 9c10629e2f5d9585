"""Which kernels know of clusters (PTX ISA 5.1.7, 11.5).

`ptxas` puts the CTA's rank into every address of a shared variable.  Here only kernels do that could tell: those that ask for
clusters in a directive, name other CTAs or pairs of them, or read where they are in their cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from isa.syntax import Block, Function, Instr, Kernel, Reg, Stmt

DIRECTIVES = ("reqnctapercluster", "explicitcluster", "maxclusterrank", "blocksareclusters")
OPCODES = ("mapa.", "getctarank.", "barrier.cluster.")
PARTS = (".multicast::cluster", ".cta_group::2", ".shared::cluster.shared::cta")
REGISTERS = ("%cluster_cta", "%clusterid", "%is_explicit_cluster")


def known(kernel: Kernel, functions: Mapping[str, Function]) -> bool:
    """Whether a kernel of a module with these functions knows of clusters."""
    if any(name in DIRECTIVES for name, _ in kernel.performance):
        return True
    bodies = [kernel.body, *(f.body for f in functions.values() if f.body)]
    return any(_tells(instr) for body in bodies for instr in _instructions(body))


def _instructions(body: Iterable[Stmt]) -> Iterator[Instr]:
    for statement in body:
        if isinstance(statement, Instr):
            yield statement
        elif isinstance(statement, Block):
            yield from _instructions(statement.body)


def _tells(instr: Instr) -> bool:
    if instr.opcode.startswith(OPCODES) or any(part in instr.opcode for part in PARTS):
        return True
    return any(isinstance(operand, Reg) and operand.name.startswith(REGISTERS) for operand in instr.operands)
