"""Run-time compilation and launch of CUDA C++: NVRTC and the CUDA driver through ctypes.

PyTorch's CUDA builds include libnvrtc and load libcuda, so only PyTorch is needed. The calls follow the NVRTC and CUDA
Driver API references, whose C interfaces are stable since CUDA 11.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpusim.measure.device import UnavailableError

MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
"""``CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES``."""
STATIC_SHARED_LIMIT_BYTES = 48 * 1024
"""Dynamic shared memory above this size must be enabled through that attribute."""

Argument = int | ctypes.c_int | ctypes.c_longlong | ctypes.c_void_p


def target(major: int, minor: int) -> str:
    """The architecture to compile for; Hopper's own instructions need its ``a`` variant.

    >>> target(8, 0), target(9, 0)
    ('sm_80', 'sm_90a')
    """
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def compile_cubin(source: str, architecture: str) -> bytes:
    """Machine code of CUDA C++ text.

    Raises:
        UnavailableError: NVRTC is missing, or rejects the source (an instruction that the architecture lacks).
    """
    nvrtc = _nvrtc()
    program = ctypes.c_void_p()
    created = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"gpusim.cu", 0, None, None)
    if created:
        raise UnavailableError(f"NVRTC rejected a program (status {created})")
    try:
        options = (ctypes.c_char_p * 2)(f"--gpu-architecture={architecture}".encode(), b"--std=c++17")
        if nvrtc.nvrtcCompileProgram(program, len(options), options):
            raise UnavailableError(f"NVRTC for {architecture}: {_first_error(nvrtc, program)}")
        size = ctypes.c_size_t()
        code = ctypes.create_string_buffer(0)
        if not nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)):
            code = ctypes.create_string_buffer(size.value)
        if not size.value or nvrtc.nvrtcGetCUBIN(program, code):
            raise UnavailableError(f"NVRTC gave no machine code for {architecture}")
        return code.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _first_error(nvrtc: ctypes.CDLL, program: ctypes.c_void_p) -> str:
    """The first error line of the compiler's log."""
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(max(1, size.value))
    nvrtc.nvrtcGetProgramLog(program, log)
    lines = log.value.decode(errors="replace").splitlines()
    return next((line.strip() for line in lines if "error" in line), lines[0] if lines else "no reason given")


@cache
def _nvrtc() -> ctypes.CDLL:
    """NVRTC from PyTorch, or from a CUDA installation."""
    for candidate in _candidates():
        try:
            # NVRTC opens its built-ins by bare name, which works once they are loaded from the same folder.
            for builtins in sorted(Path(candidate).parent.glob("libnvrtc-builtins.so*")):
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    raise UnavailableError("no libnvrtc found; install a PyTorch with CUDA, or set CUDA_HOME")


def _candidates() -> Iterator[str]:
    """Candidate paths of libnvrtc: PyTorch's packages, CUDA installations, the loader's search path."""
    folders = [Path(root) for root in _package_folders("nvidia")]
    folders += [Path(root) / "lib" for root in _package_folders("torch")]
    folders += [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders += sorted(Path("/usr/local").glob("cuda*"), reverse=True)
    for folder in folders:
        found = sorted(folder.rglob("libnvrtc.so*"), reverse=True) + sorted(folder.rglob("libnvrtc-*.so*"))
        yield from (str(path) for path in found if "builtins" not in path.name and "alt" not in path.name)
    yield from ("libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2")


def _package_folders(name: str) -> list[str]:
    """Folders of an installed package, without importing it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    return list(spec.submodule_search_locations or ()) if spec else []


@dataclass(frozen=True, slots=True)
class Module:
    """Loaded machine code. The caller's CUDA context must be current (PyTorch holds a tensor on the GPU)."""

    driver: ctypes.CDLL
    handle: ctypes.c_void_p

    def bind(
        self, name: str, grid: int, block: int, arguments: Sequence[Argument], *, stream: int, shared_bytes: int = 0
    ) -> Callable[[], None]:
        """Bind a kernel to its arguments; each call launches it into a stream.

        Args:
            arguments: Pointers as int, numbers as the ctypes type of the parameter.
            stream: Raw handle of the stream.
        """
        function = ctypes.c_void_p()
        self._check(self.driver.cuModuleGetFunction(ctypes.byref(function), self.handle, name.encode()))
        if shared_bytes > STATIC_SHARED_LIMIT_BYTES:
            self._check(self.driver.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes))
        values = [ctypes.c_void_p(value) if isinstance(value, int) else value for value in arguments]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        sizes = [ctypes.c_uint(size) for size in (grid, 1, 1, block, 1, 1, shared_bytes)]

        def launch() -> None:
            # ``pointers`` holds raw addresses: ``values`` must outlive this function.
            assert len(values) <= len(pointers)
            self._check(self.driver.cuLaunchKernel(function, *sizes, ctypes.c_void_p(stream), pointers, None))

        return launch

    def _check(self, status: int) -> None:
        if status:
            raise UnavailableError(f"the CUDA driver rejected a microbenchmark: {_error_text(self.driver, status)}")


def load(cubin: bytes) -> Module:
    """Load machine code into the current context.

    Raises:
        UnavailableError: there is no driver, or it rejects the code.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise UnavailableError(f"no CUDA driver: {error}") from None
    handle = ctypes.c_void_p()
    status = driver.cuModuleLoadData(ctypes.byref(handle), ctypes.c_char_p(cubin))
    if status:
        raise UnavailableError(f"the CUDA driver rejected the machine code: {_error_text(driver, status)}")
    return Module(driver, handle)


def _error_text(driver: ctypes.CDLL, status: int) -> str:
    text = ctypes.c_char_p()
    driver.cuGetErrorString(status, ctypes.byref(text))
    return (text.value or b"unknown error").decode() + f" ({status})"
