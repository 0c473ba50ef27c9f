"""The work of stateful nodes at run time: objects that generated code makes once per task and calls once per record."""
