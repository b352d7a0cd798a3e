"""`python -m quench.examples FOLDER` writes the examples: a model, pictures, programs; its README.md says what to do with them."""

import pathlib
import shutil
import sys


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m quench.examples FOLDER")
    folder = pathlib.Path(sys.argv[1])
    if folder.exists():
        sys.exit(f"quench.examples: `{folder}` exists: name a new folder")
    shutil.copytree(pathlib.Path(__file__).with_name("_examples"), folder)
    print(f"{folder}/README.md says what to do with them")


if __name__ == "__main__":
    main()
