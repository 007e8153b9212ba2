"""Figures of trained networks and their evaluations, drawn by Matplotlib."""
