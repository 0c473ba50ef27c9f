"""Records of topics on the command line: which ones, and how they are shown."""
