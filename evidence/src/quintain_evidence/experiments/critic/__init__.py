"""Critics off-policy: experiments of the family."""
