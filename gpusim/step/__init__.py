"""A step of a model: tasks that a host launches into streams of a GPU."""
