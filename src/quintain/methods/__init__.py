"""Methods: one file per published method, in a folder per family; their loops in `loops`.

Each has a frozen `Config` and ``train(config, run)``. Import a method by its module:
``from quintain.methods.rl import grpo``.
"""
