"""File access: input within bounds, YAML with line numbers, output written completely or not at all."""
