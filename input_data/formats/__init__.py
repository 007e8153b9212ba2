"""The kinds of files that data sets are read from."""
