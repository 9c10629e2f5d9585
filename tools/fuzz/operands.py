"""One instruction of every form of the registry on random registers: addresses, descriptors, counts, coordinates, bits."""

from __future__ import annotations

import random
import re
from functools import cache

import numpy as np

from emu.memory_map import ARRAY_BASE, Struct
from isa import registry
from isa.program import GLOBAL_BASE, LOCAL_WINDOW, PARAM_BASE, SHARED_BASE, SHARED_WINDOW
from isa.registry import Form
from programs.tensormap import TensorMap
from tools.docs.examples import HEAD, lowered
from tools.fuzz.subjects import Start

TARGET, WORDS, MAP = "sm_90a", 64, 128
# What an address, a descriptor or a count may be near to; the map is the first parameter.
NEAR = [0, ARRAY_BASE, ARRAY_BASE + 8 * WORDS, PARAM_BASE, GLOBAL_BASE, LOCAL_WINDOW, SHARED_WINDOW + SHARED_BASE]
NEAR += [SHARED_BASE, SHARED_BASE + 1024, SHARED_BASE + 4096, 0x4000004000010040, 1 << 31, 1 << 63, (1 << 64) - 1]
OFFSETS = (0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, -1, -16, 1 << 12, 1 << 31)
LOADS = {"h": ("b16", 2), "r": ("b32", 4), "f": ("b32", 4), "l": ("b64", 8), "d": ("b64", 8), "c": ("b8", 1)}
START = """    ld.param.b64 %l98, [block]; mov.b32 %r998, %tid.x; setp.eq.u32 %p8, %r998, 0;
    mov.b32 %r997, smem; @%p8 mbarrier.init.shared.b64 [%r997], 3; @%p8 mbarrier.init.shared.b64 [%r997+8], 128; bar.sync 0;
"""
DRAIN = "    nanosleep.u32 3000; bar.sync 1; ret;\n}\n"


@cache
def forms() -> tuple[Form, ...]:
    """Every form of the target."""
    registry.load()
    return tuple(form for form in registry.forms() if TARGET in form.targets)


def kernel(form: Form) -> str:
    """A kernel that loads the registers of the form's example, runs it, and waits a while."""
    example = lowered(form)[0]
    head = HEAD.format(target=TARGET).replace("k(.param", f"k(.param .align 64 .b8 map[{MAP}], .param")
    loads = []
    for n, name in enumerate(dict.fromkeys(re.findall(r"%[hrfldc]\d+", example))):
        kind, size = LOADS[name[1]]
        loads.append(f"    ld.global.{kind} {name}, [%l98+{8 * (n % WORDS)}];" if size else "")
    declared, _, body = head.partition("THERE:")
    return f"{declared}{START}THERE:{body}" + "\n".join(loads) + f"\n    {example}\n{DRAIN}"


def case(rng: random.Random) -> tuple[str, str, Start]:
    """Name, text and launch of a random instruction with random operands."""
    form = rng.choice(forms())
    values = np.array([value(rng) for _ in range(WORDS)], np.uint64)
    tiles = np.zeros((64, 64), np.uint16)
    box = rng.choice(((64, 8), (32, 64), (8, 1)))
    args = [TensorMap(tiles, box, 128), Struct(values, bytes(56))]
    return form.syntax, kernel(form), Start((rng.choice((1, 1, 2)),), (rng.choice((128, 128, 32, 70)),), args, 4096)


def value(rng: random.Random) -> int:
    """Eight bytes: near something, small, or any."""
    roll = rng.random()
    if roll < 0.6:
        return (rng.choice(NEAR) + rng.choice(OFFSETS)) % (1 << 64)
    return rng.randrange(300) if roll < 0.8 else rng.getrandbits(64)
