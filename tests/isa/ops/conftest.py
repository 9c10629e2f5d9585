"""One instruction in a minimal kernel, through our assembler and through NVIDIA's."""

import pytest

from isa import registry
from isa.errors import AssemblyError
from isa.expand import expand
from isa.layout import Layout
from isa.lowering import Lowering

HEADER = """.version 8.8
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 pointer, .param .align 64 .b8 map[128], .param .u32 count, .param .align 4 .b8 small[8])
{{
    .reg .b16 %h<16>; .reg .b32 %r<300>; .reg .b64 %rd<16>; .reg .f32 %f<300>; .reg .f64 %fd<8>; .reg .pred %p<8>;
    .local .align 16 .b8 stack[64];
"""


def kernel(body: str, target: str = "sm_90a") -> str:
    """PTX text of a kernel around `body`."""
    return f"{HEADER.format(target=target)}{body}\n}}\n"


class Instructions:
    """Tables of instructions against both assemblers; only what needs ptxas is skipped without it."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request

    kernel = staticmethod(kernel)

    def lower(self, text: str, target: str = "sm_90a"):
        """The micro-operations of `text` (without the marker behind it and the final EXIT)."""
        registry.load()
        source = kernel(f"{text}\nnanosleep.u32 0;", target)
        lines = source.splitlines()
        module = expand(source, "test.ptx", {}, ())
        entry = module.kernels[0]
        return Lowering(entry, target, Layout(module, entry), lambda pos: lines[pos.line - 1]).run().ops[:-2]

    def words(self, text: str, target: str = "sm_90a"):
        """(name, immediate) of each micro-operation of `text`."""
        return [(op.micro.name, op.imm) for op in self.lower(text, target)]

    def accept(self, texts, target: str = "sm_90a") -> None:
        """Both assemblers take every instruction."""
        body = "\n".join(f"{{ {text} }}" for text in texts)
        self.lower(body, target)
        accepted, messages = self.ptxas(body, target)
        assert accepted, messages

    def reject(self, text: str, target: str = "sm_90a") -> AssemblyError:
        """Neither assembler takes the instruction; returns our error."""
        with pytest.raises(AssemblyError) as caught:
            self.lower(text, target)
        accepted, _ = self.ptxas(text, target)
        assert not accepted
        return caught.value

    def ptxas(self, body: str, target: str = "sm_90a") -> tuple[bool, str]:
        """Whether NVIDIA's assembler takes a kernel around `body`, and its messages."""
        assemble = self.request.getfixturevalue("ptxas")
        return assemble(kernel(f"{body}\nret;", target), target)


@pytest.fixture
def instructions(request: pytest.FixtureRequest) -> Instructions:
    """The checks of this folder."""
    return Instructions(request)
