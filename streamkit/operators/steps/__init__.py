"""The steps of the language, one module each."""
