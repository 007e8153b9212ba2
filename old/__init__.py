"""What all parts share: errors, files written whole, progress."""
