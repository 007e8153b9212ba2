"""Published results, reproduced: experiments, runs, and the page of them."""
