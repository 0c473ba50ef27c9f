"""The language server: what editors ask about topologies, tests and the files that they include."""
