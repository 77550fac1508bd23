"""The tests that take longest, and what each holds: the table of CONTRIBUTING.md.

    python benchmarks/slowest_tests.py REPORT.xml [--write]

``pytest --junitxml=REPORT.xml`` writes the report; `make test-durations` runs both. Cases of a test are added up, with
the set-up that each waited for. What a test holds is its name.
"""

from __future__ import annotations

import argparse
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

from provenance import ROOT, commit, describe, machine
from sections import replaced, row

PAGE = ROOT / "CONTRIBUTING.md"
SECTION = "slowest"
MOST = 30
"""Tests that are listed."""


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description="List the tests that take longest, and what each holds.")
    parser.add_argument("report", type=Path, metavar="REPORT.xml", help="what pytest --junitxml wrote")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    given = parser.parse_args()
    table = slowest_table(given.report)
    if not given.write:
        print(table, end="")
        return
    when = f"Written on {datetime.now(UTC):%Y-%m-%d} at {commit()}: {describe(machine())}."
    PAGE.write_text(replaced(PAGE, {SECTION: f"{table}\n{when}\n"}), encoding="utf-8")


def slowest_table(report: Path) -> str:
    """The longest tests of a report as Markdown, and how much of the whole they are.

    Raises:
        OSError, xml.etree.ElementTree.ParseError: the report cannot be read.
    """
    taken_s, cases = _durations(report)
    longest = taken_s.most_common(MOST)
    lines = [row(("time", "cases", "file", "what it holds")), "|---:|---:|---|---|"]
    for (module, name), seconds in longest:
        path = f"`{module.replace('.', '/')}.py`"
        lines.append(row((f"{seconds:.1f} s", str(cases[module, name]), path, held(name))))
    whole_s, of_these_s = taken_s.total(), sum(seconds for _, seconds in longest)
    total = f"{cases.total():,} cases in {whole_s / 60:.1f} minutes, added up over processes"
    return "\n".join([*lines, "", f"{total}; these take {100 * of_these_s / whole_s:.0f} %.", ""])


def _durations(report: Path) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Seconds and cases of each test, by the name of its module and its own."""
    taken_s: Counter[tuple[str, str]] = Counter()
    cases: Counter[tuple[str, str]] = Counter()
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 -- of our own pytest
        key = case.attrib["classname"], case.attrib["name"].partition("[")[0]
        taken_s[key] += float(case.attrib["time"])  # type: ignore[assignment]  # a counter adds any number
        cases[key] += 1
    return taken_s, cases


def held(name: str) -> str:
    """What a test holds, by its name; a doctest has that of what it is an example of.

    >>> held("test_one_more_stage_is_never_slower"), held("gpusim.units.ceil_div")
    ('one more stage is never slower', 'examples of `gpusim.units.ceil_div`')
    """
    claim = name.removeprefix("test_")
    return claim.replace("_", " ") if claim != name else f"examples of `{name}`"


if __name__ == "__main__":
    main()
