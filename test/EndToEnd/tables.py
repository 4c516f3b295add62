"""Is lit's format for tables: every row of a table *.txt is a test of its own, run by run.py. Files *.test are lit's
usual ones."""
import os
import shlex
import subprocess
import sys

import lit.formats
import lit.Test

import run


class Tables(lit.formats.ShTest):
    def getTestsForPath(self, suite, path, lit_config, config):
        if not path[-1].endswith(".txt"):
            yield from super().getTestsForPath(suite, path, lit_config, config)
            return
        for text, _, quick in run.rows(path[-1]):
            test = lit.Test.Test(suite, path + (text,), config)
            test.requires += [] if quick else ["long"]
            yield test

    def execute(self, test, lit_config):
        table, text = test.path_in_suite[-2:]
        if not table.endswith(".txt"):
            return super().execute(test, lit_config)
        if missing := test.getMissingRequiredFeatures():
            return lit.Test.UNSUPPORTED, f"{' '.join(missing)} is not there"
        command = [sys.executable, str(run.HERE / "run.py"), table, text]
        environment = os.environ | {"PC_BUILD": os.path.dirname(test.config.pc_bin_dir)}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        return (lit.Test.PASS if done.returncode == 0 else lit.Test.FAIL), f"$ {shlex.join(command)}\n{done.stdout}"
