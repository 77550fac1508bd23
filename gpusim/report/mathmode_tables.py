"""Tables of a math-mode answer."""

from __future__ import annotations

from gpusim.mathmode.resolve import MathMode
from gpusim.report.text_table import TextTable


def mathmode_tables(answer: MathMode) -> list[TextTable]:
    """The path and the rule that decided it; contradictions, settings, overridden rules, notes."""
    title = f"{answer.op} of {answer.dtype} tensors in {answer.framework} {answer.version} on {answer.arch}"
    undecided = "undecided"
    facts = [
        ("path", answer.path or undecided),
        ("unit", answer.unit or undecided),
        ("accumulate", answer.accumulate or ("none" if answer.path else undecided)),
        ("rule", answer.rule),
        ("", answer.says),
        ("source", answer.source),
        ("library", answer.library or "none"),
    ]
    shown = [TextTable(title, ("what", "value"), tuple(fact for fact in facts if fact[1]))]
    if answer.conflicts:
        clashes = tuple((one.rule, one.says, one.source) for one in answer.conflicts)
        shown.append(TextTable("Contradictions", ("rule", "statement", "source"), clashes))
    if answer.considered:
        settings = tuple((one.name, one.value, one.effect) for one in answer.considered)
        shown.append(TextTable("Settings", ("name", "value", "effect"), settings))
    if answer.overridden:
        overridden = tuple((one.what, one.rule, one.by) for one in answer.overridden)
        shown.append(TextTable("Overridden", ("overridden", "rule", "by"), overridden))
    if answer.notes:
        shown.append(TextTable("Notes", ("what", "source"), tuple((one.says, one.source) for one in answer.notes)))
    return shown
