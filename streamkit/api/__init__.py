"""streamkit from Python: `import streamkit` offers what is here, by name, on first use."""
