"""Every model on one data set under one budget: runs, table, pictures."""
