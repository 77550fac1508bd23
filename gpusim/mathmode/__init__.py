"""Which arithmetic a framework's operation takes on a GPU, and which rule decides.

The rules are data: a YAML file per framework beside this module, and ``nvidia.yaml`` for what the
libraries and the hardware make of it. ``rulebook`` reads them, ``resolve`` applies them.
"""
