"""Run sglang's own bench client without torch: its packages are put in place of their `__init__`, which load an engine.

Run by sglang's own interpreter: python run_sglang.py OPTIONS…
"""

import runpy
import sys
import types
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

STUBS: Mapping[str, dict[str, object]] = {
    "sglang": {"__version__": version("sglang")},
    "sglang.srt": {},
    "sglang.srt.utils": {},
    "sglang.srt.disaggregation": {},
    "sglang.srt.disaggregation.utils": {"FAKE_BOOTSTRAP_HOST": "2.2.2.2"},
    "datasets": {"load_dataset": None},
}
"""Modules that the client imports and a load of random prompts does not use, with what it takes from them."""


def main() -> None:
    site = Path(sys.prefix, "lib", f"python3.{sys.version_info.minor}", "site-packages")
    for name, members in STUBS.items():
        module = types.ModuleType(name)
        module.__path__ = [str(site.joinpath(*name.split(".")))]
        vars(module).update(members)
        sys.modules[name] = module
    sys.argv[0] = "sglang.benchmark.serving"
    runpy.run_module(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
