"""Commands for topology files: written, checked, shown, tried."""
