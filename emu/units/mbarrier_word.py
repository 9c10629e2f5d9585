"""The 64-bit word of an mbarrier as an H200 stores it.

Bits 1..20 (-expected) mod 2^20, 21..41 (-tx_count) mod 2^21, 43..62 (-pending) mod 2^20, bit 63 phase parity.
"""

from __future__ import annotations

from numba import njit

M20, M21 = (1 << 20) - 1, (1 << 21) - 1


@njit(inline="always")
def expected_of(word: int) -> int:
    """Arrivals that the next phase expects."""
    return -(word >> 1) & M20


@njit(inline="always")
def pending_of(word: int) -> int:
    """Arrivals that the current phase still waits for."""
    return -(word >> 43) & M20


@njit(inline="always")
def tx_of(word: int) -> int:
    """Bytes that the current phase still waits for (negative: early bytes)."""
    x = -(word >> 21) & M21
    return x - (1 << 21) if x >= (1 << 20) else x


@njit(inline="always")
def phase_of(word: int) -> int:
    """Parity of the current phase."""
    return (word >> 63) & 1


@njit(inline="always")
def make_word(expected: int, tx: int, pending: int, phase: int) -> int:
    """The 64-bit word of a state."""
    return ((-expected & M20) << 1) | ((-tx & M21) << 21) | ((-pending & M20) << 43) | (phase << 63)
