"""Tables of a math mode."""

from __future__ import annotations

from gpusim.mathmode.resolve import MathMode
from gpusim.report.text_table import TextTable


def mathmode_tables(mode: MathMode) -> list[TextTable]:
    """The path and the rule that decided it; contradictions, settings, overridden rules, notes."""
    title = f"{mode.op} of {mode.dtype} tensors in {mode.framework} {mode.version} on {mode.arch}"
    undecided = "undecided"
    facts = [
        ("path", f"{mode.path or undecided}{' (allowed, not required)' if mode.use == 'allowed' else ''}"),
        ("unit", mode.unit or undecided),
        ("accumulate", mode.accumulate or ("none" if mode.path else undecided)),
        ("rule", mode.rule),
        ("", mode.says),
        ("source", mode.source),
        ("library", mode.library or "none"),
    ]
    shown = [TextTable(title, ("what", "value"), tuple(fact for fact in facts if fact[1]))]
    if mode.conflicts:
        clashes = tuple((one.rule, one.says, one.source) for one in mode.conflicts)
        shown.append(TextTable("Contradictions", ("rule", "statement", "source"), clashes))
    if mode.considered:
        settings = tuple((one.name, one.value, one.effect) for one in mode.considered)
        shown.append(TextTable("Settings", ("name", "value", "effect"), settings))
    if mode.overridden:
        overridden = tuple((one.what, one.rule, one.by) for one in mode.overridden)
        shown.append(TextTable("Overridden", ("overridden", "rule", "by"), overridden))
    if mode.notes:
        shown.append(TextTable("Notes", ("what", "source"), tuple((one.says, one.source) for one in mode.notes)))
    return shown
