"""The page of demo.py: a capsule network to draw for, and to move atoms of."""
