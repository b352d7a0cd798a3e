#!/usr/bin/env python3
"""scripts/check_words: it refuses each pattern wherever people read it, and nothing else."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import support

SCRIPT = support.ROOT / "scripts/check_words"


class Words(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check(self, name, text):
        """(exit code, numbers of the lines that are refused)"""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        done = subprocess.run([sys.executable, SCRIPT, path], capture_output=True, text=True)
        lines = [int(line.removeprefix(f"{path}:").partition(":")[0]) for line in done.stdout.splitlines() if line.startswith(str(path))]
        return done.returncode, lines

    def test_each_pattern_is_refused(self):
        for words in ("Of bytes: how many follow.", "What is left of it.", "Which of them is read.", "Who reads it.",
                      "Whose name it has.", "Whom to believe.", "Whoever reads it.", "Those of a panel.", "Those that are left."):
            with self.subTest(words):
                self.assertEqual((1, [1]), self.check("a.h", f"// {words}\n"))

    def test_where_comments_are(self):
        self.assertEqual((1, [2]), self.check("a.cc", "int x;\n    // Of x.\n"))
        self.assertEqual((1, [1]), self.check("a.proto", "  // What is there.\n"))
        self.assertEqual((1, [1]), self.check("a.def", "// Of rows.\n"))
        self.assertEqual((1, [1]), self.check("CMakeLists.txt", "# What it builds.\n"))
        self.assertEqual((1, [2]), self.check("a.py", "import sys\n# Of sys.\n"))
        self.assertEqual((1, [2]), self.check("b.py", 'def f():\n    """What f gives."""\n'))
        self.assertEqual((1, [2]), self.check("script", "#!/bin/sh\n# Of a script.\n"))

    def test_sentences_inside_a_comment(self):
        self.assertEqual((1, [1]), self.check("a.h", "// A count. Of words, all.\n"))
        self.assertEqual((1, [2]), self.check("a.h", "// A count.\n// What is left is 0.\n"))
        self.assertEqual((1, [3]), self.check("a.h", "// A count\n//\n// Of words.\n"))
        self.assertEqual((1, [1]), self.check("a.h", "// * Of words.\n"))

    def test_pages(self):
        self.assertEqual((1, [3]), self.check("README.md", "# Of headings\n\nOf pages.\n"))
        self.assertEqual((1, [2]), self.check("README.md", "A line.\nWhat follows is long.\n"))
        self.assertEqual((1, [1]), self.check("README.md", "- **Bold.** Of the rest.\n"))
        self.assertEqual((1, [3]), self.check("README.md", "| a | b |\n|---|---|\n| x | What it is |\n"))
        self.assertEqual((0, []), self.check("README.md", "```\nOf code\n```\n"))

    def test_help_texts(self):
        text = 'options.Add("--keep", keep,\n            "Of blobs");\n'
        self.assertEqual((1, [2]), self.check("services/cli/a.cc", text))
        self.assertEqual((0, []), self.check("services/gateway/a.cc", text))

    def test_what_is_right(self):
        for words in ("Number of words: those of a panel.", "What is the time?", "Which is it, and why?", "Of course it is.",
                      'As in "Of mice and men".', "Whether it is read.", "Those are 4."):
            with self.subTest(words):
                self.assertEqual((0, []), self.check("a.h", f"// {words}\n"))
        self.assertEqual((0, []), self.check("a.h", "// A number of words, each\n// Of which is an identifier.\n"))
        self.assertEqual((0, []), self.check("a.h", "int Of(int x);  // from x\n"))
        self.assertEqual((0, []), self.check("a.txt", "// Of text.\n"))

    def test_a_file_that_is_absent(self):
        done = subprocess.run([sys.executable, SCRIPT, self.folder / "a.h"], capture_output=True, text=True)
        self.assertEqual((1, f"check_words: {self.folder}/a.h is no file\n"), (done.returncode, done.stderr))


if __name__ == "__main__":
    support.main("ops_check_words")
