"""Commands for applications: run, watched, queried, reset."""
