"""Comparisons of methods: claims, worlds and settings (`rl`: the family of policy gradients)."""
