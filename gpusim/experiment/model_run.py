"""A prediction of a whole model, as experiments describe it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from gpusim.files.checked_document import Part
from gpusim.models.loading import load_model
from gpusim.models.policy import Fusion, Mode, Policy, Precision
from gpusim.record import Version


class ModelRun(Part):
    """A step of a model under a policy."""

    model: str
    mode: Mode = "train"
    precision: Precision = "fp32"
    sizes: dict[str, PositiveInt] = Field(default={}, description="batch and others that the model has")
    gpus: PositiveInt = 1
    accumulation: PositiveInt = 1
    graphs: bool = False
    fusion: Fusion = "none"
    layout: Literal["nchw", "nhwc"] | None = Field(default=None, description="of images; as the precision is used")
    framework: str = "pytorch"
    version: Version = "2.1"

    def check(self) -> None:
        """Check the model, its sizes and the policy.

        Raises:
            ValueError: the first problem; one line.
        """
        _ = Policy(self.mode, self.precision, self.framework, self.version)
        _ = load_model(self.model).graph(self.sizes)
