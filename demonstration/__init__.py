"""The web page of demo.py: draw digits, see and change their capsules."""
