"""JSON Schemas of the files that a user writes."""

from __future__ import annotations

from gpusim.cli.options import FileKindArgument, print_schema


def schema(kind: FileKindArgument) -> None:
    """Print the JSON Schema of a kind of files, for editors.

    The schemas ship, too. An editor with the YAML language server completes and checks a file that names one in its
    first line, '# yaml-language-server: $schema=SCHEMA.json', as 'gpusim archs new' writes it.
    """
    print_schema(kind)
