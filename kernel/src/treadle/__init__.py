"""A plugin-based, hookable agent kernel: a treadle turns steps into turns."""
