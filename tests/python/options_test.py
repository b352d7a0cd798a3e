#!/usr/bin/python3
"""Every row of services/codegen/options/options.def is a keyword of IR.compile: options_test.py.

Ends with 77 (skipped) where numpy, cffi or grpcio are missing.
"""

import inspect
import typing
import unittest

import staged

from quench import IR, InputError
from quench._compile_options import ROWS, CompileOptions
from quench._messages import messages
from quench._steps import fill_compile_options

# By kind: a value that is not the default.
CHANGED = {"switch": False, "consent": True, "int": 1, "double": 7.5, "text": "net", "json": {"scale": 2}, "names": ["cat", "dog"]}


def filled(given):
    options = messages()("quench.codegen.v1.CompileOptions")()
    fill_compile_options(options, given)
    return options


class Rows(unittest.TestCase):
    def test_every_row_of_the_table_is_there(self):
        table = (staged.ROOT / "services/codegen/options/options.def").read_text()
        rows = [line for line in table.splitlines()
                if line.startswith(("QUENCH_SWITCH(", "QUENCH_CONSENT(", "QUENCH_NUMBER(", "QUENCH_CHOICE(", "QUENCH_TEXT(", "QUENCH_JSON(", "QUENCH_NAMES("))]
        self.assertEqual(len(rows), len(ROWS))
        self.assertGreater(len(ROWS), 8)

    def test_each_keyword_sets_its_field_alone(self):
        for keyword, row in ROWS.items():
            values = row["choices"] if row["kind"] == "choice" else [CHANGED[row["kind"]]]
            for value in values:
                with self.subTest(keyword=keyword, value=value):
                    message = filled({keyword: value})
                    field = message.DESCRIPTOR.fields_by_name[row["field"]]
                    unset = row["kind"] == "choice" and field.enum_type.values_by_name[row["choices"][value]].number == 0
                    self.assertEqual([each.name for each, _ in message.ListFields()], [] if unset else [row["field"]])
                    if row["kind"] == "switch":
                        self.assertTrue(getattr(message, row["field"]))
                        self.assertEqual(filled({keyword: True}).ListFields(), [])
                    if row["kind"] == "consent":
                        self.assertEqual(filled({keyword: False}).ListFields(), [])

    def test_each_keyword_is_one_of_compile(self):
        parameters = set(inspect.signature(IR.compile).parameters)
        typed = set(typing.get_type_hints(CompileOptions))
        self.assertEqual(set(ROWS) - parameters, typed)
        self.assertEqual(parameters & typed, set())
        for keyword in ROWS:  # a TypeError would say that it is unknown
            with self.assertRaises((AttributeError, InputError)):
                IR.compile(None, **{keyword: None})

    def test_what_is_wrong_is_told(self):
        for given, words in (({"opt_level": 5}, "opt_level is 5, must be 0 to 4"), ({"max_size": "a"}, "max_size is 'a', must be a number"),
                             ({"check": "perhaps"}, "check is `perhaps`, must be `auto`, `full`, `no`"),
                             ({"preprocess": "a"}, "preprocess is 'a', must be a dict"), ({"prefix": "9"}, "prefix is `9`")):
            with self.assertRaisesRegex(InputError, words):
                filled(given)
        with self.assertRaisesRegex(TypeError, "compile\\(\\) has no option `winograds`; did you mean `winograd`"):
            IR.compile(None, winograds=False)


staged.main()
