"""The networks, their hyper-parameters and registry."""
