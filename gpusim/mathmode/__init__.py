"""The arithmetic that a framework's operation uses on a GPU, and the rule that decides it.

The rules are data: a YAML file per framework beside this module, and ``nvidia.yaml`` for the libraries and the
hardware. ``rulebook`` reads them, ``resolve`` applies them.
"""
