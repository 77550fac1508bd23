"""What may be captured: a script, a model of timm, torchvision or transformers, an exported program."""

from __future__ import annotations

import difflib
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch

from gpusim.capture.errors import CaptureError, place_of, reason_of
from gpusim.capture.exported import exported_source
from gpusim.capture.fake_cuda import OnMeta, uninitialised
from gpusim.capture.sizes import Point
from gpusim.capture.tracing import Source
from gpusim.files.yamlfile import read_text


def source_of(text: str, sizes: Mapping[str, int | Literal["batch"]]) -> Source:
    """The source that a text names.

    Args:
        text: a library and a name, or the path of a file.
        sizes: sizes that a user states; an open dimension of an ONNX graph may be the batch.

    Raises:
        CaptureError: it cannot be read, or a library that it needs is not there.
    """
    path = Path(text)
    if path.suffix == ".onnx":
        _library("onnx")
        from gpusim.capture.onnx_graph import onnx_source

        return onnx_source(path, sizes)
    if path.suffix == ".pt2":
        return exported_source(path, sizes)
    numbers = {name: size for name, size in sizes.items() if size != "batch"}
    if others := [name for name in sizes if name not in numbers]:
        raise CaptureError(f"--size {others[0]}=batch: of an .onnx file or an exported program; {text} has a batch")
    return _source_of(text, path, numbers)


def _source_of(text: str, path: Path, sizes: Mapping[str, int]) -> Source:
    kind, colon, name = text.partition(":")
    if colon and kind in ("timm", "torchvision", "hf"):
        return {"timm": _timm, "torchvision": _torchvision, "hf": _transformers}[kind](name, sizes)
    if path.suffix == ".py":
        return _script(path, sizes)
    raise CaptureError(
        f"{text}: expected a .py script, an .onnx file, an exported program (.pt2), timm:NAME, torchvision:NAME or "
        "hf:CONFIG"
    )


def _versions(*modules: Any) -> str:
    return ", ".join(f"{module.__name__} {module.__version__}" for module in (torch, *modules))


def _library(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        raise CaptureError(f"{name} is not installed; install it with: pip install {name}") from None


def _classes(output: Any, point: Point) -> Any:
    """Cross entropy of scores against classes."""
    output = output[0] if isinstance(output, tuple | list) else output
    targets = torch.empty(point["batch"], dtype=torch.long, device="cuda")
    return torch.nn.functional.cross_entropy(output, targets)


def _images(channels: int) -> Callable[[Point], Any]:
    def inputs(point: Point) -> Any:
        return torch.empty(point["batch"], channels, point["image_size"], point["image_size"])

    return inputs


def _chosen(what: str, known: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
    if unknown := [name for name in sizes if name not in known]:
        raise CaptureError(f"{what}: has no size {unknown[0]}; it has {', '.join(known)}")
    return {**known, **sizes}


def _timm(name: str, sizes: Mapping[str, int]) -> Source:
    timm = _library("timm")
    try:
        with OnMeta(), uninitialised(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of models that have got another name
            config = timm.create_model(name).pretrained_cfg
    except RuntimeError as error:
        close = difflib.get_close_matches(name, timm.list_models(), n=3, cutoff=0.5)
        remedy = f"did you mean {', '.join(close)}?" if close else "timm.list_models() lists them"
        raise CaptureError(f"timm:{name}: {reason_of(error)}; {remedy}") from None
    channels, height, _ = config.get("input_size", (3, 224, 224))
    fixed_size = bool(config.get("fixed_input_size"))
    chosen = _chosen(f"timm:{name}", {"batch": 8, "image_size": height}, sizes)

    def model(eager: bool) -> Any:
        timm.layers.set_fused_attn(not eager)
        options = {"img_size": chosen["image_size"]} if fixed_size and chosen["image_size"] != height else {}
        return timm.create_model(name, **options)

    return Source(name, f"timm:{name}, {_versions(timm)}", model, _images(channels), chosen, _classes)


def _torchvision(name: str, sizes: Mapping[str, int]) -> Source:
    torchvision = _library("torchvision")
    known = torchvision.models.list_models(torchvision.models)
    if name not in known:
        raise CaptureError(f"torchvision:{name}: torchvision {torchvision.__version__} has no such model of images")
    usual = {"batch": 8, "image_size": 299 if name == "inception_v3" else 224}
    chosen = _chosen(f"torchvision:{name}", usual, sizes)

    def model(_eager: bool) -> Any:
        extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        return torchvision.models.get_model(name, weights=None, **extra)

    return Source(
        name, f"torchvision:{name}, {_versions(torchvision)}", model, _images(3), chosen, _classes, attends=False
    )


def _transformers(name: str, sizes: Mapping[str, int]) -> Source:
    transformers = _library("transformers")
    from gpusim.capture.transformers_models import transformers_source

    return transformers_source(name, sizes, transformers)


def _script(path: Path, sizes: Mapping[str, int]) -> Source:
    """A script that defines ``model()``, ``inputs(batch, ...)`` and, where it has one, ``loss(output)``."""
    code = read_text(path)
    module = ModuleType("captured")
    module.__file__ = str(path)
    names = vars(module)
    sys.modules[module.__name__] = module  # where dataclasses look for it
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.insert(0, folder)  # for modules beside it, as Python does
    try:
        exec(compile(code, str(path), "exec"), names)  # noqa: S102 -- the user's own script
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- the user's code may raise anything
        raise CaptureError(f"{place_of(path, error)}: {reason_of(error)}") from None
    for name in ("model", "inputs"):
        if not callable(names.get(name)):
            raise CaptureError(f"{path}: define {name}({'batch' if name == 'inputs' else ''}), a function")
    stated = inspect.signature(names["inputs"]).parameters
    known = {name: 8 if one.default is one.empty else one.default for name, one in stated.items()}
    if next(iter(known), "") != "batch":
        known = {"batch": 8, **known}
    if unknown := [name for name in sizes if name not in known]:
        raise CaptureError(f"{path}: inputs() takes no {unknown[0]}; it takes {', '.join(known)}")
    taken = list(stated)

    def inputs(point: Point) -> Any:
        return names["inputs"](*(point["batch" if at == 0 else name] for at, name in enumerate(taken)))

    loss = names.get("loss")
    return Source(
        path.stem,
        f"{path.name}, {_versions()}",
        lambda _eager: names["model"](),
        inputs,
        {**known, **sizes},
        (lambda output, _point: loss(output)) if callable(loss) else None,
        script=path,
    )
