"""streamkit from Python: `import streamkit` offers the names of this package, and imports each on first use."""
