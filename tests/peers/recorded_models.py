"""Archives of recorded models: what a framework saved, what it was given and what it gave, for tests that have no framework.

tests/cases/FORMAT/NAME.zip has a folder for each case: `model.ENDING`, `in.NAME.npy` for each input, `out.NAME.npy` or `out.N.npy` for each output.
"""

import io
import pathlib
import zipfile

import numpy

CASES = pathlib.Path(__file__).resolve().parents[1] / "cases"
MOST_BYTES = 24 << 10  # of an archive: larger cases are left to the comparison itself


def npy(values):
    file = io.BytesIO()
    numpy.save(file, numpy.asarray(values))
    return file.getvalue()


def write(form, name, cases):
    """cases: folder -> file -> bytes. The same contents are the same bytes. Whether the archive is kept."""
    file = CASES / form / f"{name}.zip"
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for folder, files in sorted(cases.items()):
            for member, contents in sorted(files.items()):
                archive.writestr(zipfile.ZipInfo(f"{folder}/{member}", (1980, 1, 1, 0, 0, 0)), contents, zipfile.ZIP_DEFLATED, 9)
    if not cases or len(whole.getvalue()) > MOST_BYTES:
        return False
    file.write_bytes(whole.getvalue())
    return True
