"""A state machine of one mbarrier: Hypothesis chooses operations, the reference model answers, the machine must agree."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from emu.testing.interpreter import execute
from emu.testing.model import MOST, Mbarrier
from emu.testing.program import BarrierProgram, Op, Outcome


class MbarrierMachine(RuleBasedStateMachine):
    """One warp and one mbarrier; operations that trap are left out.

    `MbarrierMachine.TestCase` is a test.  The operations run on the machine at the end, as one program.
    """

    model: Mbarrier

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self.answers: list[tuple[int, int, int]] = []

    @initialize(count=st.one_of(st.integers(1, 5), st.just(MOST)))
    def init(self, count: int) -> None:
        """mbarrier.init."""
        self.count, self.model = count, Mbarrier.init(count)

    @precondition(lambda self: self.model.pending > 0)
    @rule(data=st.data(), kind=st.sampled_from(["arrive", "drop", "arrive_expect"]), tx=st.integers(0, 4096))
    def arrive(self, data: st.DataObject, kind: str, tx: int) -> None:
        """An arrival of any count that the phase still expects."""
        if kind == "arrive_expect":
            if self.model.tx + tx <= MOST:
                self.model = self.model.arrive(1, expect=tx)
                self.ops.append(Op(kind, 0, tx))
            return
        count = data.draw(st.integers(1, min(self.model.pending, 4)))
        self.model = self.model.arrive(count, drop=count if kind == "drop" else 0)
        self.ops.append(Op(kind, 0, count))

    @rule(tx=st.integers(-4096, 4096))
    def change_tx(self, tx: int) -> None:
        """expect_tx and complete_tx, also below zero."""
        if abs(self.model.tx + tx) <= MOST:
            self.model = self.model.change(tx)
            self.ops.append(Op("expect" if tx >= 0 else "complete", 0, abs(tx)))

    @rule(parity=st.integers(0, 1))
    def test(self, parity: int) -> None:
        """test_wait; a wait too where it does not block for ever."""
        over = self.model.over(parity)
        self.answers.append((0, len(self.ops), int(over)))
        self.ops += [Op("test", 0, parity)] + ([Op("wait", 0, parity)] if over else [])

    def teardown(self) -> None:
        """All answers and the word."""
        program = BarrierProgram((self.count,), (tuple(self.ops),))
        expected = Outcome("done", "", (len(self.ops),), (self.model.word,), tuple(self.answers))
        assert execute(program) == expected, program
