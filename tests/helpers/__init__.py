"""Code that the tests of several packages share.

Python keeps the compiled form of modules for them even where the environment forbids it, as containers often
do. Otherwise each of the suite's processes would compile all modules again, which takes as long as an import.
"""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
