"""Tests of what the field claims about capsules, on trained networks."""
