"""A prediction of a whole model, as experiments describe it."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from gpusim.files.checked_document import Part
from gpusim.models.loading import load_model
from gpusim.models.policy import Fusion, Layout, Mode, Policy, Precision, default_layout
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
    layout: Layout | None = Field(default=None, description="of images; as the precision is used")
    framework: str = "pytorch"
    version: Version = "2.1"

    @property
    def policy(self) -> Policy:
        """How the model runs.

        Raises:
            PolicyError: choices that contradict each other.
        """
        return Policy(
            mode=self.mode,
            precision=self.precision,
            framework=self.framework,
            version=self.version,
            layout=self.layout or default_layout(self.precision),
            fusion=self.fusion,
            accumulates=self.accumulation > 1,
        )

    def check(self) -> None:
        """Check the model, its sizes and the policy.

        Raises:
            ValueError: the first problem; one line.
        """
        _ = self.policy
        _ = load_model(self.model).graph(self.sizes)
