"""The data sets, each in its own file."""
