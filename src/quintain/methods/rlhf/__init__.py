"""Methods that learn from a reward model of what people prefer."""
