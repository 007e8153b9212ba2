"""Figures of trained networks and their evaluations, drawn by Matplotlib.

The figures of a `TrainedModel` are one module each, with a function
`make(trained, num_examples)` that returns a dict from file name to content. It
raises UserError if the network lacks what the figure shows.
"""
