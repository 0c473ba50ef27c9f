"""What is generated from the language: its reference, its JSON Schema, examples."""
