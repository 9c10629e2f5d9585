"""The part of the CUDA driver API that recording needs, through ctypes on libcuda.

Names, argument orders and enumeration values are those of the CUDA 13.0 driver API header
(`cuda.h`).  Every call's return code is checked; a failure raises `CudaError` with the driver's own
text.  Nothing is imported but the standard library and NumPy, so that it runs on any machine with a
driver.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from typing import Any, Self

import numpy as np

# CUdevice_attribute, CUfunction_attribute, CUjit_option, CUlaunchAttributeID
DEVICE_ATTRIBUTES = {"multiprocessors": 16, "clock_khz": 13, "major": 75, "minor": 76, "shared_optin": 97}
FUNCTION_ATTRIBUTES = {"shared_static": 1, "local_bytes": 3, "registers": 4, "binary_version": 6}
MAX_DYNAMIC_SHARED, NON_PORTABLE_CLUSTER = 8, 14
JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES = 5, 6
CLUSTER_DIMENSION = 4

# CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion
TENSOR_TYPES = {
    "u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9, "tf32": 11,
}  # fmt: skip
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
L2_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}
TENSOR_MAP_BYTES, TENSOR_MAP_ALIGN = 128, 64

_LOG_BYTES = 16384

_PROTOTYPES: dict[str, list[Any]] = {
    "cuInit": [c_uint],
    "cuDriverGetVersion": [POINTER(c_int)],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetName": [c_char_p, c_int, c_int],
    "cuDeviceGetAttribute": [POINTER(c_int), c_int, c_int],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuDevicePrimaryCtxRelease_v2": [c_int],
    "cuCtxSetCurrent": [c_void_p],
    "cuCtxSynchronize": [],
    "cuModuleLoadDataEx": [POINTER(c_void_p), c_void_p, c_uint, POINTER(c_int), POINTER(c_void_p)],
    "cuModuleUnload": [c_void_p],
    "cuModuleGetFunction": [POINTER(c_void_p), c_void_p, c_char_p],
    "cuFuncGetAttribute": [POINTER(c_int), c_int, c_void_p],
    "cuFuncSetAttribute": [c_void_p, c_int, c_int],
    "cuMemAlloc_v2": [POINTER(c_uint64), c_size_t],
    "cuMemFree_v2": [c_uint64],
    "cuMemcpyHtoD_v2": [c_uint64, c_void_p, c_size_t],
    "cuMemsetD32_v2": [c_uint64, c_uint, c_size_t],
    "cuMemcpyDtoH_v2": [c_void_p, c_uint64, c_size_t],
    "cuTensorMapEncodeTiled": [
        c_void_p, c_int, c_uint32, c_void_p, POINTER(c_uint64), POINTER(c_uint64),
        POINTER(c_uint32), POINTER(c_uint32), c_int, c_int, c_int, c_int,
    ],
    "cuLaunchKernel": [c_void_p] + [c_uint] * 7 + [c_void_p, POINTER(c_void_p), POINTER(c_void_p)],
    "cuLaunchKernelEx": [c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_void_p)],
    "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
    "cuEventDestroy_v2": [c_void_p],
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
    "cuGetErrorString": [c_int, POINTER(c_char_p)],
}  # fmt: skip


class CudaError(Exception):
    """A driver call failed: which one, the code, the driver's name and text for it."""


class _LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: an identifier padded to 8 bytes, then a 64-byte union."""

    _fields_ = [("id", c_int), ("pad", c_int), ("value", c_uint32 * 16)]


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attrs", POINTER(_LaunchAttribute)),
        ("count", c_uint),
    ]


def _strides(array: np.ndarray) -> np.ndarray:
    """The array when it is contiguous (its bytes are what the device gets), else an error."""
    if not array.flags["C_CONTIGUOUS"]:
        raise ValueError("only C-contiguous arrays can be copied to the device")
    return array


class Gpu:
    """One device with its primary context; use as a context manager.

    Raises `CudaError` when no driver or no device is there.
    """

    def __init__(self, device: int = 0, library: str = "libcuda.so.1") -> None:
        try:
            self._lib = ctypes.CDLL(library)
        except OSError as error:
            raise CudaError(f"no CUDA driver: {error}") from error
        for name, arguments in _PROTOTYPES.items():
            function = getattr(self._lib, name)
            function.argtypes, function.restype = arguments, c_int
        self._call("cuInit", 0)
        handle = c_int()
        self._call("cuDeviceGet", byref(handle), device)
        self._device = handle.value
        context = c_void_p()
        self._call("cuDevicePrimaryCtxRetain", byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        self._owned: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # After a device fault every call fails; the fault has been reported already.
        for address in self._owned:
            self._lib.cuMemFree_v2(address)
        self._lib.cuDevicePrimaryCtxRelease_v2(self._device)

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self._lib, name)(*args)
        if code:
            raise CudaError(
                f"{name}: {code} {self._text('cuGetErrorName', code)}: {self._text('cuGetErrorString', code)}"
            )

    def _text(self, function: str, code: int) -> str:
        text = c_char_p()
        getattr(self._lib, function)(code, byref(text))
        return text.value.decode() if text.value else "?"

    # ---- facts ---------------------------------------------------------------------------------

    def properties(self) -> dict[str, int | str]:
        """Name, driver version and the attributes of `DEVICE_ATTRIBUTES`."""
        name, version = ctypes.create_string_buffer(256), c_int()
        self._call("cuDeviceGetName", name, 256, self._device)
        self._call("cuDriverGetVersion", byref(version))
        facts: dict[str, int | str] = {"name": name.value.decode(), "driver": version.value}
        for key, attribute in DEVICE_ATTRIBUTES.items():
            value = c_int()
            self._call("cuDeviceGetAttribute", byref(value), attribute, self._device)
            facts[key] = value.value
        return facts

    # ---- memory --------------------------------------------------------------------------------

    def upload(self, array: np.ndarray) -> int:
        """Copy `array` to new device memory and return its address (256-byte aligned)."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), max(array.nbytes, 1))
        self._owned.append(address.value)
        self.write(address.value, array)
        return address.value

    def zeros(self, size: int) -> int:
        """New device memory of `size` bytes (a multiple of 4), all zero; its address."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), size)
        self._owned.append(address.value)
        self.clear(address.value, size)
        return address.value

    def clear(self, address: int, size: int) -> None:
        """Write zeros to `size` bytes (a multiple of 4) of device memory."""
        self._call("cuMemsetD32_v2", address, 0, size // 4)

    def free(self, address: int) -> None:
        """Give device memory back before the end."""
        self._call("cuMemFree_v2", address)
        self._owned.remove(address)

    def write(self, address: int, array: np.ndarray) -> None:
        """Copy `array` (C-contiguous) to device memory at `address`."""
        if array.nbytes:
            self._call("cuMemcpyHtoD_v2", address, _strides(array).ctypes.data_as(c_void_p), array.nbytes)

    def read(self, address: int, array: np.ndarray) -> None:
        """Fill `array` (C-contiguous) from device memory at `address`."""
        if array.nbytes:
            self._call("cuMemcpyDtoH_v2", _strides(array).ctypes.data_as(c_void_p), address, array.nbytes)

    # ---- kernels -------------------------------------------------------------------------------

    def load(self, image: bytes) -> c_void_p:
        """Load PTX text or a cubin; the driver's assembler log is in the error."""
        module = c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        keys = (c_int * 2)(JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        text = ctypes.create_string_buffer(image)  # PTX must end in a zero byte
        try:
            self._call("cuModuleLoadDataEx", byref(module), text, 2, keys, values)
        except CudaError as error:
            raise CudaError(f"{error}\n{log.value.decode(errors='replace')}") from None
        return module

    def function(self, module: c_void_p, name: str, dynamic_shared: int = 0, cluster: int = 1) -> c_void_p:
        """The kernel `name`, allowed to use `dynamic_shared` bytes and clusters of `cluster`."""
        function = c_void_p()
        self._call("cuModuleGetFunction", byref(function), module, name.encode())
        if dynamic_shared:
            self._call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, dynamic_shared)
        if cluster > 8:
            self._call("cuFuncSetAttribute", function, NON_PORTABLE_CLUSTER, 1)
        return function

    def attributes(self, function: c_void_p) -> dict[str, int]:
        """Registers, static shared and local bytes of a kernel, as the driver reports them."""
        facts = {}
        for key, attribute in FUNCTION_ATTRIBUTES.items():
            value = c_int()
            self._call("cuFuncGetAttribute", byref(value), attribute, function)
            facts[key] = value.value
        return facts

    def launch(
        self,
        function: c_void_p,
        grid: Sequence[int],
        block: Sequence[int],
        shared: int,
        parameters: Sequence[bytes],
        cluster: int = 1,
    ) -> None:
        """Launch on the default stream; `parameters` are the raw bytes of each kernel parameter."""
        buffers = [ctypes.create_string_buffer(raw, len(raw)) for raw in parameters]
        pointers = (c_void_p * max(len(buffers), 1))(*[ctypes.addressof(b) for b in buffers])
        if cluster == 1:
            self._call("cuLaunchKernel", function, *grid, *block, shared, None, pointers, None)
            return
        attribute = _LaunchAttribute(CLUSTER_DIMENSION, 0, (c_uint32 * 16)(cluster, 1, 1))
        config = _LaunchConfig((c_uint * 3)(*grid), (c_uint * 3)(*block), shared, None, ctypes.pointer(attribute), 1)
        self._call("cuLaunchKernelEx", byref(config), function, pointers, None)

    def synchronize(self) -> None:
        """Wait for the device; a kernel's fault surfaces here."""
        self._call("cuCtxSynchronize")

    def timed(self, work: Any) -> float:
        """Milliseconds between two events recorded round `work()`."""
        events = [c_void_p(), c_void_p()]
        for event in events:
            self._call("cuEventCreate", byref(event), 0)
        self._call("cuEventRecord", events[0], None)
        work()
        self._call("cuEventRecord", events[1], None)
        self._call("cuEventSynchronize", events[1])
        elapsed = c_float()
        self._call("cuEventElapsedTime", byref(elapsed), events[0], events[1])
        for event in events:
            self._call("cuEventDestroy_v2", event)
        return elapsed.value

    # ---- tensor maps ---------------------------------------------------------------------------

    def tensor_map(
        self,
        address: int,
        dtype: str,
        dims: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        swizzle: int = 0,
        l2_promotion: int = 128,
        element_strides: Sequence[int] = (),
        nan_fill: bool = False,
    ) -> bytes:
        """128 bytes of a tiled tensor map.

        `dims`, `box` and `element_strides` have the innermost dimension first; `strides` are bytes
        of the dimensions after the innermost; `dtype` is a key of `TENSOR_TYPES`; `swizzle` and
        `l2_promotion` are bytes.  Elements out of bounds read as zero, or as NaN with `nan_fill`.
        """
        rank = len(dims)
        if len(strides) != rank - 1 or len(box) != rank:
            raise ValueError(f"a rank-{rank} map needs {rank - 1} strides and {rank} box sizes")
        space = ctypes.create_string_buffer(TENSOR_MAP_BYTES + TENSOR_MAP_ALIGN)
        base = ctypes.addressof(space)
        aligned = base + (-base) % TENSOR_MAP_ALIGN  # CUtensorMap must be 64-byte aligned
        self._call(
            "cuTensorMapEncodeTiled",
            aligned,
            TENSOR_TYPES[dtype],
            rank,
            address,
            (c_uint64 * rank)(*dims),
            (c_uint64 * max(rank - 1, 1))(*strides),
            (c_uint32 * rank)(*box),
            (c_uint32 * rank)(*(element_strides or [1] * rank)),
            0,  # CU_TENSOR_MAP_INTERLEAVE_NONE
            SWIZZLES[swizzle],
            L2_PROMOTIONS[l2_promotion],
            int(nan_fill),  # CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE or _NAN_REQUEST_ZERO_FMA
        )
        return ctypes.string_at(aligned, TENSOR_MAP_BYTES)
