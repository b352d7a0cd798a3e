#!/usr/bin/env python3
"""Seeds of PyTorch's fuzzers: the archives of a folder, and the code and pickles in them.

Usage: torch_seeds.py FOLDER SEEDS    writes SEEDS/torch, SEEDS/code and SEEDS/pickle
"""

import io
import pathlib
import sys
import zipfile


def unpack(data, prefix, seeds):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            entry = archive.read(name)
            kind = {".py": "code", ".pkl": "pickle"}.get(pathlib.PurePath(name).suffix)
            if kind:
                (seeds / kind / f"{prefix}_{name.replace('/', '_')}").write_bytes(entry)
            elif entry.startswith(b"PK"):  # weights of torch.export, an archive of their own
                unpack(entry, f"{prefix}_{name.replace('/', '_')}", seeds)


def main():
    folder, seeds = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    for kind in ("torch", "code", "pickle"):
        (seeds / kind).mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.pt*")):
        (seeds / "torch" / path.name).write_bytes(path.read_bytes())
        unpack(path.read_bytes(), path.name, seeds)


if __name__ == "__main__":
    main()
