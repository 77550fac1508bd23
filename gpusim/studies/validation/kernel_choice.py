"""The kernel choice scored against recorded kernels: same tile, same split-K, and the time that other choices cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpusim.evidence.measured import MeasuredRow
from gpusim.studies.validation.accuracy import percent
from gpusim.studies.validation.prediction import Scored

Tile = tuple[int, int]


def tile_of(kernel: str) -> Tile | None:
    """The CTA tile in a kernel's name, in the order the name gives it.

    >>> tile_of("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x5_tn")
    (128, 64)
    """
    found = re.search(r"_(\d+)x(\d+)(?:_|$)", kernel)
    return (int(found[1]), int(found[2])) if found else None


def recorded_tile(row: MeasuredRow) -> Tile | None:
    """The tile that was recorded."""
    return (row.tile_m, row.tile_n) if row.tile_m and row.tile_n else None


def recorded_split_k(row: MeasuredRow) -> int | None:
    """CTAs that shared one tile of C: the grid's z beyond the batch; None where no grid of that kind is recorded."""
    if row.grid is None or recorded_tile(row) is None or row.grid[2] % row.batch:
        return None
    return row.grid[2] // row.batch


def kernel_choice(scored: Sequence[Scored]) -> dict[str, Any] | None:
    """How often the recorded tile and split-K were chosen, and the cost of other choices; None without records.

    ``time_pct`` is the predicted time of the chosen kernels over that of the recorded ones, as a percentage lost
    (positive) or won; ``pinned_mape`` is the error with the recorded kernel (its split-K still chosen).
    ``confusion`` counts recorded against chosen tiles, most frequent pair first.
    """
    recorded = [item for item in scored if recorded_tile(item.row)]
    if not recorded:
        return None
    split = [item for item in recorded if recorded_split_k(item.row)]
    return {
        "recorded": len(recorded),
        **_agreement("same_tile", recorded, [_same_tile(item) for item in recorded]),
        "split_recorded": len(split),
        **_agreement("same_split", split, [_same_split(item) for item in split]),
        **_agreement("same_tile_and_split", split, [_same_tile(item) and _same_split(item) for item in split]),
        **_cost(recorded),
        "confusion": _confusion(recorded),
    }


def by_gpu_and_op(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """The score of each GPU and operator that has records, over all tables."""
    members: dict[tuple[str, str], list[Scored]] = {}
    for item in scored:
        members.setdefault((item.row.gpu, item.row.op), []).append(item)
    scores = [({"gpu": gpu, "op": op}, kernel_choice(items)) for (gpu, op), items in members.items()]
    return [place | score for place, score in scores if score]


def _same_tile(item: Scored) -> bool:
    return tile_of(item.result.kernel) == recorded_tile(item.row)


def _same_split(item: Scored) -> bool:
    return item.result.launch.split_k == recorded_split_k(item.row)


def _agreement(name: str, items: Sequence[Scored], same: Sequence[bool]) -> dict[str, Any]:
    """How many agree, and their share."""
    return {name: sum(same), f"{name}_pct": percent(sum(same) / len(items)) if items else None}


def _cost(recorded: Sequence[Scored]) -> dict[str, Any]:
    """Time of the chosen kernels over the recorded ones, where the catalogue has these."""
    pinned = [(item, item.pinned_us) for item in recorded if item.pinned_us is not None]
    names = ("time_pct", "chosen_mape", "pinned_mape")
    if not pinned:
        return {"pinned": 0, **dict.fromkeys(names)}
    chosen_us = np.array([item.predicted_us for item, _ in pinned])
    pinned_us = np.array([time_us for _, time_us in pinned])
    measured_us = np.array([item.row.time_us for item, _ in pinned])
    values = (
        percent(float(chosen_us.sum() / pinned_us.sum()) - 1),
        percent(float(np.abs(chosen_us / measured_us - 1).mean())),
        percent(float(np.abs(pinned_us / measured_us - 1).mean())),
    )
    return {"pinned": len(pinned), **dict(zip(names, values, strict=True))}


def _confusion(recorded: Sequence[Scored]) -> list[dict[str, Any]]:
    """Each pair of a recorded and a chosen tile, with the number of rows and the time that this choice costs."""
    members: dict[tuple[Tile, Tile], list[Scored]] = {}
    for item in recorded:
        pair = (recorded_tile(item.row) or (0, 0), tile_of(item.result.kernel) or (0, 0))
        members.setdefault(pair, []).append(item)
    ordered = sorted(members, key=lambda pair: (-len(members[pair]), pair))
    return [
        {
            "recorded": _text(pair[0]),
            "chosen": _text(pair[1]),
            "rows": len(members[pair]),
            "time_pct": _cost(members[pair])["time_pct"],
        }
        for pair in ordered
    ]


def _text(tile: Tile) -> str:
    return "x".join(map(str, tile)) if any(tile) else "none"
