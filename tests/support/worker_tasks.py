"""Tasks that tests give to worker processes."""

import math
import os
import time
from dataclasses import dataclass
from typing import ClassVar


def divide(number: int, by: int) -> float:
    return number / by


def sleep(_context: object, seconds: float) -> None:
    time.sleep(seconds)


def end(_context: object, status: int) -> None:
    os._exit(status)


def length(context: bytes, task: bytes) -> int:
    return len(context) + len(task)


class UnlikeOthersError(Exception):
    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"{reason} {number}")  # a pickle would make it again from this one text


def fail(_context: object, number: int) -> None:
    raise UnlikeOthersError(number, "task")


@dataclass(frozen=True, slots=True)
class Broken:
    """A workload; the prediction of the one with number 1 meets a defect."""

    number: int

    repeats_launches: ClassVar[bool] = False
    is_quick: ClassVar[bool] = False
    flops: ClassVar[float] = 0.0
    reference_s: ClassVar[float] = 0.0
    seconds: ClassVar[float] = math.inf

    def predict(self, *_: object) -> int:
        if self.number == 1:
            raise ZeroDivisionError("of one")
        return self.number
