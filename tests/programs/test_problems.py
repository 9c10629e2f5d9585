"""Problems: references against naive formulas, launches, options, error measure."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import programs
from programs.attention import reference
from programs.errors import ErrorSum
from programs.gemm import to_tf32
from programs.tensormap import TensorMap

SMALL = {
    "fa1": {"seqlen": 150, "seqlen_k": 40, "heads": 4, "heads_k": 2, "batch": 2},
    "fa2": {"seqlen": 150, "seqlen_k": 40, "heads": 4, "heads_k": 2, "batch": 2},
    "fa3": {"seqlen": 150, "seqlen_k": 40, "heads": 4, "heads_k": 2, "batch": 2},
    "fa4": {"seqlen": 300, "seqlen_k": 40, "heads": 4, "heads_k": 2, "batch": 2},
    "gemm": {"m": 150, "n": 264, "k": 72},
    "softmax": {"rows": 9, "cols": 100},
    "vector_add": {"n": 1000},
}


def naive(name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by the textbook, in float64."""
    x = {key: value.astype(np.float64) for key, value in inputs.items()}
    if name.startswith("fa"):
        x |= {key: x[key].repeat(2, axis=2) for key in "kv"}  # heads 0, 1 share head 0 of k and v
        scores = np.einsum("bqhd,bkhd->bhqk", x["q"], x["k"]) / math.sqrt(128)
        weights = np.exp(scores)
        total = weights.sum(-1, keepdims=True)
        return {"o": np.einsum("bhqk,bkhd->bqhd", weights / total, x["v"]), "lse": np.log(total)[..., 0]}
    if name == "gemm":
        return {"c": np.einsum("mk,kn->mn", x["a"], x["b"])}
    if name == "softmax":
        return {"y": np.exp(x["x"]) / np.exp(x["x"]).sum(-1, keepdims=True)}
    return {"c": x["a"] + x["b"]}


def test_causal_reference_is_the_textbook() -> None:
    """Bottom-right aligned: the last row sees all keys; a row that sees none has o = 0 and lse = -inf."""
    rng = np.random.default_rng(5)
    for rows, keys in ((7, 12), (12, 7), (5, 5)):
        options = {"seqlen": rows, "seqlen_k": keys, "heads": 1, "head_dim": 64, "causal": True}
        problem = programs.find("fa3").from_options(**options)
        inputs = {n: rng.standard_normal(shape).astype(np.float16) for n, shape in problem.shapes.items()}
        q, k, v = (inputs[n][0, :, 0].astype(np.float64) for n in "qkv")
        o, lse, pairs = np.zeros((rows, 64)), np.full(rows, -np.inf), 0
        for row in range(rows):
            seen = max(0, row + 1 + keys - rows)
            pairs += seen
            if seen:
                weights = np.exp(k[:seen] @ q[row] / 8)
                o[row], lse[row] = weights @ v[:seen] / weights.sum(), np.log(weights.sum())
        outputs = {"o": o[None, :, None], "lse": lse[None, None]}
        numerics = problem.check(outputs, inputs)
        assert numerics.passed and numerics.rel_error < 1e-12
        assert problem.flops == 4 * 64 * pairs
        if keys < rows:
            outputs["lse"][0, 0, 0] = 0.0
            assert not problem.check(outputs, inputs).passed


@given(
    st.integers(1, 700), st.integers(1, 700), st.sampled_from([(1, 1), (4, 4), (6, 2)]), st.sampled_from([64, 128, 256]),
    st.booleans(), st.integers(1, 9),
)  # fmt: skip
def test_schedule(seqlen: int, keys: int, heads: tuple[int, int], head_dim: int, causal: bool, sms: int) -> None:
    """Every tile once, each CTA's column ends, no CTA waits while another has two tiles more than its share."""
    options = {"seqlen": seqlen, "seqlen_k": keys, "heads": heads[0], "heads_k": heads[1], "head_dim": head_dim}
    problem = programs.find("fa3").from_options(causal=causal, **options)
    ctas = min(sms, problem.tiles)  # type: ignore[attr-defined]
    table = problem.schedule(ctas)  # type: ignore[attr-defined]
    assert (table[0] < problem.tiles).all() and (table[-1] == problem.tiles).all()  # type: ignore[attr-defined]
    assert sorted(table[table < problem.tiles]) == list(range(problem.tiles))  # type: ignore[attr-defined]
    assert all((np.diff((column == problem.tiles).astype(int)) >= 0).all() for column in table.T)  # type: ignore[attr-defined]
    blocks = -(-seqlen // problem.tile.rows)  # type: ignore[attr-defined]
    cost = np.array([problem.key_blocks(t % blocks) + 1 for t in range(problem.tiles)] + [0])  # type: ignore[attr-defined]
    loads = cost[table].sum(0)
    assert loads.max() - loads.min() <= cost.max()


@given(st.floats(width=32, allow_nan=False))
def test_tf32_is_the_nearest(x: float) -> None:
    value = np.array([x], np.float32)
    (near,) = to_tf32(value)
    assert near.view(np.uint32) & 0x1FFF == 0 or not np.isfinite(near)
    if np.isfinite(near):
        step = abs(float(near)) * 2.0**-10 + 2.0**-136
        assert abs(float(near) - float(value[0])) <= step / 2


@pytest.mark.parametrize("name", programs.names())
def test_reference_is_the_textbook(name: str) -> None:
    problem = programs.find(name).from_options(**SMALL[name])
    inputs = problem.make_inputs(seed=3)
    outputs = naive(name, inputs)
    assert set(outputs) == set(problem.outputs)
    numerics = problem.check(outputs, inputs)
    assert numerics.passed and numerics.rel_error < 1e-12 and numerics.max_abs_error < 1e-12
    for output in problem.outputs:
        wrong = {key: value.copy() for key, value in outputs.items()}
        wrong[output].flat[-1] += 1.0
        assert not problem.check(wrong, inputs).passed
        wrong[output].flat[-1] = np.nan
        assert not problem.check(wrong, inputs).passed


@pytest.mark.parametrize("name", programs.names())
def test_launch(name: str) -> None:
    problem = programs.find(name).from_options(**SMALL[name])
    assert problem.kernel_path.is_file()
    inputs = problem.make_inputs(seed=0)
    again = problem.make_inputs(seed=0)
    assert all(np.array_equal(inputs[key], again[key]) for key in inputs)
    launch = problem.launch(inputs, sms=3)
    assert set(problem.outputs) <= set(launch.arrays)
    owned = {id(a.array) if isinstance(a, TensorMap) else id(a) for a in launch.args}
    assert {id(array) for array in launch.arrays.values()} <= owned
    assert min(launch.grid) >= 1 and min(launch.block) >= 1
    assert problem.flops > 0 and problem.shape


@pytest.mark.parametrize("name", ["fa3", "fa4", "gemm"])
def test_persistent_grid(name: str) -> None:
    problem = programs.find(name).from_options(**SMALL[name])
    inputs = problem.make_inputs()
    assert problem.launch(inputs, sms=3).grid == (3, 1, 1)
    assert problem.launch(inputs, sms=1000).grid == (problem.tiles, 1, 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", programs.names())
def test_check_of_some_tiles(name: str) -> None:
    """Only the tiles that were run are looked at."""
    problem = programs.find(name).from_options(**SMALL[name])
    inputs = problem.make_inputs()
    outputs = naive(name, inputs)
    assert problem.check(outputs, inputs, tiles=[1]).tiles_checked == 1
    first = next(iter(problem.outputs))
    outputs[first].flat[0] = 100.0
    assert problem.check(outputs, inputs, tiles=[1]).passed
    assert not problem.check(outputs, inputs, tiles=[0, 1]).passed


def test_outliers() -> None:
    problem = programs.find("fa3").from_options(seqlen=512, heads=4, inputs="outlier", dtype="bf16")
    q = problem.make_inputs(seed=1)["q"].astype(np.float64)
    assert q.var() == pytest.approx(1.1, rel=0.03)
    assert 0.0004 < np.mean(np.abs(q) > 5) < 0.0009  # 0.001 * P(|N(0, 101)| > 5) = 0.00062


def test_user_inputs() -> None:
    problem = programs.find("fa3").from_options(seqlen=8, heads=1)
    arrays = {name: np.ones((1, 8, 1, 128)) for name in "qkv"}
    adopted = problem.adopt({**arrays, "scale": np.array(0.5)})
    assert adopted["q"].dtype == np.float16
    assert problem.launch(adopted, sms=1).args[-1] == np.float32(0.5 * math.log2(math.e))
    with pytest.raises(ValueError, match="input v must have shape"):
        problem.adopt({**arrays, "v": arrays["v"][:, :4]})
    with pytest.raises(ValueError, match="scale must be one number"):
        problem.adopt({**arrays, "scale": np.ones(2)})
    with pytest.raises(ValueError, match="scale must be above 0"):
        problem.adopt({**arrays, "scale": np.array(-0.5)})


@pytest.mark.parametrize("name", programs.names())
def test_sizes_of_inputs(name: str) -> None:
    """Inputs tell their sizes, and are adopted as they are."""
    kind = programs.find(name)
    problem = kind.from_options(**SMALL[name])
    inputs = problem.make_inputs()
    sizes = kind.sizes_of(inputs)
    assert SMALL[name].items() <= sizes.items()
    adopted = kind.from_options(**sizes).adopt(inputs)
    assert all(np.array_equal(adopted[key], inputs[key]) for key in inputs)
    with pytest.raises(ValueError, match="must have shape"):
        kind.sizes_of({key: value[None] for key, value in inputs.items()})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fa3", {"head_dim": 96}, "head_dim must be one of 64, 128, 192, 256, not 96"),
        ("fa3", {"heads": 4, "heads_k": 3}, "heads_k must divide"),
        ("fa3", {"seqlen_k": -1}, "seqlen_k"),
        ("fa3", {"dtype": "fp8"}, "one of fp16, bf16"),
        ("fa3", {"defines": {"HEAD_DIM": 64}}, "HEAD_DIM follows from the option head_dim"),
        ("fa3", {"defines": {"CAUSAL": 1}}, "CAUSAL follows from the option causal"),
        ("fa4", {"head_dim": 256}, "head_dim must be one of 64, 128, not 256"),
        ("gemm", {"defines": {"DTYPE": "bf16"}}, "DTYPE follows from the option dtype"),
        ("gemm", {"dtype": "fp64"}, "fp16, bf16, tf32"),
        ("gemm", {"m": 0}, "at least 1"),
        ("softmax", {"cols": 6}, "multiple of 4"),
        ("vector_add", {"n": 0}, "at least 1"),
    ],
)
def test_refused_options(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        programs.find(name).from_options(**options)


def test_a_problem_without_axes_takes_no_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(programs.find("softmax"), "axes")
    with pytest.raises(ValueError, match="softmax makes its own inputs"):
        programs.find("softmax").sizes_of({})


def test_unknown_program() -> None:
    with pytest.raises(KeyError):
        programs.find("fa9")


def test_error_sum() -> None:
    errors = ErrorSum("x")
    errors.add(np.array([3.0, 4.0], np.float32), (slice(0, 2),), np.array([3.0, 4.0]))
    errors.add(np.array([3.0, 4.0, 0.0], np.float32), (slice(2, 3),), np.array([0.5]))
    assert errors.relative == pytest.approx(0.5 / math.sqrt(25.25))
    assert errors.max_abs == 0.5 and errors.tiles == 2
    assert errors.numerics("", 1.0).passed
    (text,) = errors.numerics("", 0.01).failed
    assert text.startswith("x has a relative error of 9.95e-02, at most 1.00e-02 may be")
    assert text.endswith("farthest off is x[2], which is 0 and not 0.5")
    errors.add(np.array([np.inf]), (slice(None),), np.array([1.0]))
    assert not errors.numerics("", 1.0).passed


def test_scores_of_any_magnitude_round_as_float32_does() -> None:
    """lse of large scores is as good as the scores: a float32 product of q and k, added up as badly as can be, is within the limit."""
    rng = np.random.default_rng(3)
    problem = programs.find("fa2").from_options(seqlen=20, seqlen_k=40, heads=1)
    for magnitude in (1, 50, 5000):
        for sign in (np.abs, np.asarray):  # of one sign: roundings of a growing sum do not cancel
            inputs = {n: sign(magnitude * rng.standard_normal(s)).astype(np.float16) for n, s in problem.shapes.items()}
            q, k, v = (inputs[n][0, :, 0].astype(np.float32) for n in "qkv")
            scores = np.zeros((20, 40), np.float32)
            for i in range(128):
                scores += np.outer(q[:, i], k[:, i])
            scaled = scores.astype(np.float64) / math.sqrt(128)
            top = scaled.max(axis=1, keepdims=True)
            weights = np.exp(scaled - top)
            o = weights / weights.sum(axis=1, keepdims=True) @ v
            lse = (top + np.log(weights.sum(axis=1, keepdims=True)))[:, 0]
            outputs = {"o": o[None, :, None], "lse": lse[None, None]}
            assert problem.check(outputs, inputs).passed


def test_a_wrong_lse_is_named_with_its_place() -> None:
    problem = programs.find("fa2").from_options(seqlen=200, heads=4, heads_k=2, batch=2)
    inputs = problem.make_inputs()
    outputs = {"o": np.zeros(inputs["q"].shape), "lse": np.zeros((2, 4, 200))}
    for batch in range(2):
        for head in range(4):
            q, k, v = inputs["q"][batch, :, head], inputs["k"][batch, :, head // 2], inputs["v"][batch, :, head // 2]
            o, lse = reference(q, k, v, problem.softmax_scale(inputs))
            outputs["o"][batch, :, head], outputs["lse"][batch, head] = o, lse
    assert problem.check(outputs, inputs).passed
    outputs["lse"][1, 2, 150] += 0.002
    (text,) = problem.check(outputs, inputs).failed
    assert text.startswith("lse[1, 2, 150], which is ") and "e-03 may be" in text
    outputs["o"][0, 7, 3, 9] += 100
    assert problem.check(outputs, inputs).failed[0].rpartition("off is ")[2].startswith("o[0, 7, 3, 9], which is 100")
