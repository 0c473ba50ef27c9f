"""The parts of `run` around an application."""
