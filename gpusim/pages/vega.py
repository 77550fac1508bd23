"""The script of Vega, Vega-Lite and vega-embed, bundled by vl-convert: what charts in a page run on."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from gpusim.execution.store import place_named
from gpusim.files.outputs import replacing

VEGA_LITE = "6.4"
"""Version of Vega-Lite whose language the charts are written in."""

_PREFIX = "vega-"
_EXPORTED = "window.vegaEmbed = vegaEmbed;"


def script() -> str:
    """The bundle, some 900 kB. It is kept in the folder of the store, since it takes vl-convert seconds to make."""
    import vl_convert  # noqa: PLC0415 -- in an extra of the package

    place = place_named()
    if place is None:
        return str(vl_convert.javascript_bundle(_EXPORTED, VEGA_LITE))
    path = place.folder / f"{_PREFIX}{version('vl-convert-python')}.js"
    with suppress(OSError):
        return path.read_text(encoding="utf-8")
    text = str(vl_convert.javascript_bundle(_EXPORTED, VEGA_LITE))
    with suppress(OSError):  # without it the next page takes as long
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as whole:
            whole.write_text(text, encoding="utf-8")
    return text


def remove_scripts(folder: Path) -> bool:
    """Remove the scripts that are kept in the folder of the store; whether there was any."""
    found = list(folder.glob(f"{_PREFIX}*.js"))
    for path in found:
        path.unlink(missing_ok=True)
    return bool(found)
