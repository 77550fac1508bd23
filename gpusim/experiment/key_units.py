"""Key paths of a spec in words, with their units: ``l2.capacity_mib`` is ``L2 capacity [MiB]``."""

from __future__ import annotations

UNITS = {
    "_gb_per_s": "GB/s",
    "_bytes_per_cycle": "B/cycle",
    "_bytes_per_cta": "B/CTA",
    "_kib_per_cta": "KiB/CTA",
    "_pj_per_byte": "pJ/B",
    "_pj_per_fma": "pJ",
    "_pj_per_lane": "pJ",
    "_pj_per_sm_cycle": "pJ",
    "_mv_per_mhz": "mV/MHz",
    "_w_per_sm": "W",
    "_per_k": "1/K",
    "_mib": "MiB",
    "_kib": "KiB",
    "_gb": "GB",
    "_bytes": "B",
    "_mhz": "MHz",
    "_cycles": "cycles",
    "_ns": "ns",
    "_us": "us",
    "_ms": "ms",
    "_mj": "mJ",
    "_w": "W",
    "_v": "V",
    "_c": "degrees C",
    "_s": "s",
    "stated_peaks": "TFLOP/s",
}
"""Units by the ending of keys of specs."""
ACRONYMS = {
    "l2": "L2",
    "dram": "DRAM",
    "sm": "SM",
    "ctas": "CTAs",
    "cta": "CTA",
    "tlb": "TLB",
    "l1": "L1",
    "fma": "FMA",
}


def heading(key_path: str) -> str:
    """A key as the heading of a column or the label of an axis.

    >>> heading("dram.peak_bandwidth_gb_per_s"), heading("sm.count")
    ('DRAM peak bandwidth [GB/s]', 'SM count')
    """
    name, unit = name_and_unit(key_path)
    return f"{name} [{unit}]" if unit else name


def value_text(key_path: str, value: object) -> str:
    """A value with the name of its key and its unit.

    >>> value_text("l2.capacity_mib", 60.0), value_text("sm.count", 108)
    ('L2 capacity 60 MiB', 'SM count 108')
    """
    name, unit = name_and_unit(key_path)
    return f"{name} {short_text(value)}{f' {unit}' if unit else ''}"


def short_text(value: object) -> str:
    """A value alone: numbers with six digits.

    >>> short_text(2039.0), short_text(True), short_text([0, 164])
    ('2039', 'true', '0 164')
    """
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.6g}"
        case list() | tuple():
            return " ".join(map(short_text, value))
    return str(value)


def unit_of(key_path: str) -> str:
    """The unit of a value: that of its key, or of the nearest key above it that has one; empty where none has.

    >>> unit_of("l2.capacity_mib"), unit_of("host.framework_call_us.linear"), unit_of("sm.count")
    ('MiB', 'us', '')
    """
    if not key_path:
        return ""
    return name_and_unit(key_path)[1] or unit_of(key_path.rpartition(".")[0])


def name_and_unit(key_path: str) -> tuple[str, str]:
    """A key path in words without its unit, and that; empty where the key has none."""
    ending = next((ending for ending in UNITS if key_path.endswith(ending)), "")
    words = key_path.removesuffix(ending).replace(".", " ").replace("_", " ").split()
    return " ".join(ACRONYMS.get(word, word) for word in words), UNITS.get(ending, "")
