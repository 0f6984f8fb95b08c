"""Tasks, worlds and verdicts that are made: what agents learn from where people wrote too little."""
