"""The embedded digits; README.md here says where they come from."""
