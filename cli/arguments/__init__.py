"""Arguments of the command line: former options, completions, files of a folder."""
