"""Errors of wrong input and defects of gpusim: their types, and how their messages quote the input."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

MOST_REPEATED = 200
"""Characters of one piece of input that an error message quotes."""
MOST_LISTED = 40
"""Known keys that an error message lists; of more it lists the first ones and counts the others."""
OF_GPUSIM = "(a defect of gpusim)"
_CUT = "..."
_LONG = re.compile(rf"'[^']{{{MOST_REPEATED - 1},}}'|\"[^\"]{{{MOST_REPEATED - 1},}}\"|\S{{{MOST_REPEATED + 1},}}")
"""Quoted text, or a word, that is longer."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class InputError(ValueError):
    """Input that the user can correct: one line that names the place and the remedy.

    Errors of arguments, files and GPUs are subclasses.
    """


class DefectError(RuntimeError):
    """A defect of gpusim after which others went on; its text is a whole reason."""


def defect_reason(error: Exception) -> str:
    """An error other than of the input, on one line."""
    return one_line(str(error) if isinstance(error, DefectError) else f"{type(error).__name__}: {error} {OF_GPUSIM}")


def excerpt(text: str) -> str:
    """A text as error messages quote it: on one line, the middle of a long one omitted.

    >>> excerpt("/" + 400 * "d" + "/runs.csv:7").replace("d", "")
    '/.../runs.csv:7'
    """
    line = " ".join(text.split())
    if len(line) <= MOST_REPEATED:
        return line
    tail = (MOST_REPEATED - len(_CUT)) // 2
    return line[: MOST_REPEATED - len(_CUT) - tail] + _CUT + line[-tail:]


def did_you_mean(key: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown key: the nearest known one, or what is known."""
    keys = sorted(known)
    close = difflib.get_close_matches(key[:100], keys, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]}?"
    others = f" and {len(keys) - MOST_LISTED} others" if len(keys) > MOST_LISTED else ""
    return f"; known are {', '.join(keys[:MOST_LISTED])}{others}"


def one_line(message: str, arguments: Iterable[str] = ()) -> str:
    """A message on one line, with long arguments, words and quoted texts shortened: they come from the input.

    Terminal control characters are escaped.
    """
    line = " ".join(message.split())
    for argument in arguments:
        name, _, value = argument.partition("=")
        for text in (argument, name, value):
            given = " ".join(text.split())
            if len(given) > MOST_REPEATED:
                line = line.replace(given, excerpt(given))
    line = _LONG.sub(lambda found: excerpt(found[0]), line)
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", line)


def shown(value: object) -> str:
    """A wrong value as a message repeats it: in full if it is short.

    >>> shown("many"), len(shown("9" * 1000)) == MOST_REPEATED + len("...")
    ("'many'", True)
    """
    text = repr(value)
    return text if len(text) <= MOST_REPEATED else text[:MOST_REPEATED] + "..."
