"""Text and token ids: tokenizers, chat templates rendered by appending, and parsers of what a model wrote.

What a model sampled is never encoded again, and untrusted text can never become a special token. The modules are
imported by name (`quintain.text.chat`, `.tokenizer`, `.parse`); this one stays empty so that importing the package
costs nothing.
"""
