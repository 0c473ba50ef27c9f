"""The command line: one module a command, each thin over the library."""
