"""What tests share: tiny data, oracles, gradients."""
