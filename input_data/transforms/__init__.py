"""What is done to images on their way to a network."""
