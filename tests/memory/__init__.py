"""Whether memory, files and state of a running application stay flat at a steady rate: `python -m tests.memory --help`."""
