"""The work of stateful nodes at run time: plain objects that generated code makes once a task and calls once a record."""
