"""The package's own client for `test_openenv`: plays a world at the address given, and prints what it saw as JSON."""

import argparse
import json

from openenv.core.generic_client import GenericEnvClient  # pyright: ignore[reportMissingImports]

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("actions", nargs="*")
arguments = parser.parse_args()
with GenericEnvClient(base_url=arguments.url).sync() as client:
    first = client.reset(seed=3, index=0, split="train")
    results = [client.step({"text": text}) for text in arguments.actions]
    seen = [[each.observation["text"], each.reward, each.done] for each in (first, *results)]
    print(json.dumps({"seen": seen, "steps": client.state()["step_count"]}))
