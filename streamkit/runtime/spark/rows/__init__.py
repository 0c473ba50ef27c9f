"""Records as rows: of files, of the log, between stages."""
