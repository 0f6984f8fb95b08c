"""Language models: load, build tiny, adapt, save, and name by the bytes of their weights.

`load` takes any Hugging Face causal-LM folder or hub id, `build_tiny` makes one from nothing, and `save` always writes
a plain folder that `transformers` loads alone. Weights are read from safetensors only, and code that comes with a model
is never run.
"""
