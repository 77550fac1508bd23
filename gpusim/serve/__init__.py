"""A GPU with knobs: a live page on this machine, and the JSON API behind it."""
