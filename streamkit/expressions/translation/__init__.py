"""From a checked syntax tree to Python source."""
