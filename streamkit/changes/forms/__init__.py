"""The form of a version of an application, whatever it is read from."""
