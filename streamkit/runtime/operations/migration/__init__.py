"""Moves the state of an application from one version to the next: changelogs, offsets and task directories."""
