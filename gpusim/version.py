"""The versions of the program and of its model; every module may read them, since this one imports none."""

from __future__ import annotations

__version__ = "1.0.0"

MODEL_VERSION = 147
"""Says which model of the machine computed a figure: results of another one are neither resumed from nor believed.

It is increased when a predicted figure moves; ``make replay`` refuses to record moved figures under the same version.
Figures of ``gpusim numerics`` and of trainings count too, though they are not replayed.
"""
