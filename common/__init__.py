"""Shared by all parts: user errors, files, flags, start-up."""
