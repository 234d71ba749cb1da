# SPDX-License-Identifier: BSD-3-Clause
"""Let a virtual environment see the torch of the Python that runs this, and nothing else of it.

Usage: link_torch.py FOLDER VENV. torch, numpy and what they require are linked into FOLDER,
which a ``.pth`` file in VENV puts at the end of its path.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path


def required(*names: str) -> set[str]:
    """The installed distributions that these need, themselves included."""
    found: set[str] = set()
    wanted = list(names)
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if name in found:
            continue
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        wanted += [re.split(r"[^\w.-]", line)[0] for line in requires if "extra ==" not in line]
    return found


def link(folder: Path, distributions: set[str]) -> None:
    """Link the modules of these distributions into the folder."""
    for module, owners in metadata.packages_distributions().items():
        names = {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners}
        spec = find_spec(module) if names & distributions else None
        if spec is None:
            continue
        places = [*(spec.submodule_search_locations or []), spec.origin or ""]
        target = folder / Path(places[0]).name
        if places[0] and not target.exists():
            target.symlink_to(places[0])


def main(folder: Path, venv: Path) -> None:
    """Link, and tell the environment where."""
    folder.mkdir(parents=True, exist_ok=True)
    link(folder, required("torch", "numpy"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = venv / "lib" / version / "site-packages" / "machine-torch.pth"
    path.write_text(f"{folder.resolve()}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
