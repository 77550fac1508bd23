"""Citations: ``[key]`` in the source of a value refers to an entry of the bibliography, ``sources``.

A key is looked up in the file that cites it, then in those that the file extends.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpusim.errors import did_you_mean
from gpusim.specs.document import Document, Tree, leaves
from gpusim.specs.sourced import Sourced

CITATION = re.compile(r"\[([A-Za-z_][A-Za-z0-9_]*)\]")


def cited_in_full(documents: Sequence[Document]) -> list[Document]:
    """A file and its bases, nearest first, with the citations of their sources written out."""
    found = []
    for index, document in enumerate(documents):
        sources = ChainMap(*(dict(base.sources) for base in documents[index:]))
        problems = (*document.problems, *_unknown(document, sources))
        found.append(replace(document, values=_written_out(document.values, sources), problems=problems))
    return found


def in_full(source: str, sources: Mapping[str, str]) -> str:
    """A source with its citations written out.

    >>> in_full("[guide], table 15", {"guide": "CUDA C++ Programming Guide"})
    'CUDA C++ Programming Guide, table 15'
    """
    return CITATION.sub(lambda cited: sources.get(cited[1], cited[0]), source)


def _written_out(values: Tree, sources: Mapping[str, str]) -> Tree:
    return {
        key: replace(value, source=in_full(value.source, sources))
        if isinstance(value, Sourced)
        else (_written_out(value, sources) if isinstance(value, dict) else value)
        for key, value in values.items()
    }


def _unknown(document: Document, sources: Mapping[str, str]) -> Iterator[str]:
    """Citations of no entry, each one line with file and line."""
    for key_path, one in leaves(document.values):
        for cited in CITATION.findall(one.source):
            if cited not in sources:
                hint = did_you_mean(cited, sources) if sources else "; add it"
                problem = f"[{cited}] is not a key of 'sources'{hint}"
                yield str(document.file.error(f"{key_path}.source", problem))
