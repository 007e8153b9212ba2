"""The page of demo.py: draw digits, see their capsules, change the atoms."""
