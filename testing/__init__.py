"""Helpers of tests: tiny data, oracles, gradients."""
