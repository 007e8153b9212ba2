"""The networks, their hyper-parameters and their registry."""
