"""The networks: capsule, baseline, their hyper-parameters and registry."""
