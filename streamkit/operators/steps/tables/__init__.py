"""Steps that turn streams into tables and tables into streams, or suppress the updates of tables."""
