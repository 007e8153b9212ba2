"""smallNORB."""
