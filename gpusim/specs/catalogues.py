"""Reading of kernel catalogues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from gpusim.cuda_version import CudaVersion
from gpusim.errors import excerpt, shown
from gpusim.files.yamlfile import SpecError, YamlFile, read_yaml
from gpusim.library.attention import AttentionKernel, attention_kernels_of
from gpusim.library.catalogue import Catalogue, ConvolutionAlgorithm, Kernel, kernels_of
from gpusim.library.transforms import ConvolutionTransforms
from gpusim.library.vector import VectorKernel
from gpusim.specs.folders import named_file

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


KERNELS = "kernels"
"""Folder of the catalogues, beside the specs."""


def catalogue_files(names: Iterable[str], folders: Sequence[Path], beside: Path) -> tuple[Path, ...]:
    """Files of catalogues, by name or path.

    Args:
        names: Of the catalogues.
        folders: Where specs are looked for.
        beside: Folder of the specs that name them.

    Raises:
        SpecError: there is no such catalogue.
    """
    found = []
    for name in names:
        path = named_file(name, KERNELS, folders, beside)
        if path is None:
            expected = excerpt(str(folders[-1] / KERNELS / f"{name}.yaml"))
            raise SpecError(f"no catalogue {shown(name)}; expected a file like {expected}")
        found.append(path)
    return tuple(found)


def files_with_bases(paths: Iterable[Path]) -> list[tuple[Path, str]]:
    """The files of catalogues, each with those that it extends, and the SHA-256 of each."""
    return [(file.path, file.sha256) for path in paths for file in _chain(path)]


def load_kernels(paths: Iterable[Path], cuda: CudaVersion | None = None) -> tuple[Kernel, ...]:
    """Kernels of catalogues for matrix multiplications, in the order of the files.

    Args:
        cuda: version of CUDA whose library has them; None for the newest.

    Raises:
        SpecError: a catalogue cannot be read or is malformed; one line with file and line.
    """
    return _kernels_of_files(_contents(paths), cuda)


def load_older_kernels(paths: Iterable[Path]) -> tuple[Kernel, ...]:
    """Kernels of catalogues that the newest library no longer has; as :func:`load_kernels`."""
    return _kernels_of_files(_contents(paths), None, older=True)


def load_convolution_kernels(paths: Iterable[Path], cuda: CudaVersion | None = None) -> tuple[Kernel, ...]:
    """As :func:`load_kernels`, of convolutions."""
    return _kernels_of_files(_contents(paths), cuda, convolving=True)


def load_convolution_algorithms(
    paths: Iterable[Path], cuda: CudaVersion | None = None
) -> tuple[ConvolutionAlgorithm, ...]:
    """Ways to compute convolutions by other kernels than those made for them; as :func:`load_kernels`."""
    catalogues = (_catalogue_of_file(*content) for content in _contents(paths))
    found = (one for catalogue in catalogues for one in catalogue.convolution_algorithms)
    return tuple(one for one in found if cuda is None or one.since_cuda <= cuda)


def load_convolution_transforms(paths: Iterable[Path], cuda: CudaVersion | None = None) -> ConvolutionTransforms | None:
    """Kernels around the GEMMs of convolutions, of the first catalogue that has them; as :func:`load_kernels`."""
    catalogues = (_catalogue_of_file(*content) for content in _contents(paths))
    found = next((one.convolution_transforms for one in catalogues if one.convolution_transforms), None)
    return found if found is None or cuda is None else found.as_of(cuda)


def load_vector_kernels(paths: Iterable[Path]) -> tuple[VectorKernel, ...]:
    """Kernels for operators on rows, in the order in which a framework considers them.

    Raises:
        SpecError: a catalogue cannot be read or is malformed; one line with file and line.
    """
    catalogues = (_catalogue_of_file(*content) for content in _contents(paths))
    return tuple(kernel for catalogue in catalogues for kernel in catalogue.vector_kernels)


def load_attention_kernels(paths: Iterable[Path]) -> tuple[AttentionKernel, ...]:
    """Kernels of fused attention; as :func:`load_vector_kernels`."""
    catalogues = (_catalogue_of_file(*content) for content in _contents(paths))
    return tuple(kernel for catalogue in catalogues for kernel in attention_kernels_of(catalogue.attention_families))


@lru_cache(maxsize=64)
def _kernels_of_files(
    files: tuple[tuple[Path, tuple[str, ...]], ...],
    cuda: CudaVersion | None,
    *,
    convolving: bool = False,
    older: bool = False,
) -> tuple[Kernel, ...]:
    catalogues = {path: _catalogue_of_file(path, sha256s) for path, sha256s in files}
    reduction = next((one.split_k_reduction for one in catalogues.values() if one.split_k_reduction), None)
    for path, catalogue in catalogues.items():
        for index, family in enumerate(catalogue.families):
            if "reduce" in family.split_k and reduction is None:
                problem = "'reduce' needs a second kernel; add split_k_reduction to kernel_catalogues"
                raise SpecError(str(read_yaml(path).error(f"families.{index}.split_k", problem)))
    families = (family for catalogue in catalogues.values() for family in catalogue.families)
    chosen = (one for one in families if bool(one.convolution) is convolving and one.is_of(cuda) is not older)
    return kernels_of(chosen, reduction)


def _contents(paths: Iterable[Path]) -> tuple[tuple[Path, tuple[str, ...]], ...]:
    """Catalogues, each with the SHA-256 of its file and of those that it extends."""
    return tuple((path, tuple(file.sha256 for file in _chain(path))) for path in paths)


def _chain(path: Path) -> list[YamlFile]:
    """The file of a catalogue and those that it extends, nearest first.

    Raises:
        SpecError: a file cannot be read, or is not there, or extends itself.
    """
    chain = [read_yaml(path)]
    while isinstance(chain[-1].data, dict) and isinstance(base := chain[-1].data.get("extends"), str):
        file = chain[-1]
        below = file.path.parent / f"{base}.yaml"
        if not below.is_file():
            raise file.error("extends", f"no catalogue {shown(base)} beside this one; correct it")
        if any(below == one.path for one in chain):
            raise file.error("extends", "the catalogue extends itself; remove one 'extends'")
        chain.append(read_yaml(below))
    return chain


@lru_cache(maxsize=64)
def _catalogue_of_file(path: Path, sha256s: tuple[str, ...]) -> Catalogue:
    del sha256s  # only keys the cache
    *nearer, last = _chain(path)
    catalogue = _validated(last)
    for file in reversed(nearer):
        catalogue = _validated(file).after(catalogue)
    return catalogue


def _validated(file: YamlFile) -> Catalogue:
    try:
        return Catalogue.model_validate(file.data)
    except ValidationError as error:
        raise SpecError(*(_problem(file, one) for one in error.errors(include_url=False))) from None


def _problem(file: YamlFile, error: ErrorDetails) -> str:
    problem = error["msg"].removeprefix("Value error, ")
    got = "" if isinstance(error["input"], dict | list) else f", got {shown(error['input'])}"
    return str(file.error(_key_path(file.data, error), f"{problem}{got}; correct it"))


def _key_path(data: Any, error: ErrorDetails) -> str:
    """Where an error stands in a file: pydantic names the case of a union too, which is not a key."""
    keys: list[str] = []
    for key in error["loc"]:
        if isinstance(data, dict) and key not in data and data.get("kind") == key:
            continue
        keys.append(str(key))
        below = dict(enumerate(data)) if isinstance(data, list) else data
        data = below.get(key) if isinstance(below, dict) else None
    return ".".join([*keys, "kind"] if error["type"] == "union_tag_invalid" else keys)
