"""The language server: what editors ask about topologies, tests and the files that they include."""

KINDS = ("variable", "function", "method", "property", "keyword", "string", "number", "operator", "parameter")
"""The kinds of words in expressions, as the protocol calls them: the server names them in its first answer, without the modules that find words."""
