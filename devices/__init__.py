"""Which devices a job computes on: one, several, several machines."""
