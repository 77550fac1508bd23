"""stub"""

from dataclasses import dataclass


@dataclass
class Launched:
    tasks: tuple


def launched(calls, arithmetic):
    return Launched(())
