"""The layer checker must find what it is there for: usage check_layers_test.py PATH_OF_CHECKER"""
import pathlib
import subprocess
import sys
import tempfile

CASES = [
    ("learner/a.cc", '#include "rollout/engine.h"\n', 1),
    ("runtime/base/a.h", '#include "runtime/data/prompt.h"\n', 1),
    ("model/a.cc", '#include "transport/collective.h"\n', 0),
    ("model/a.cc", '#include "transport/message_bus.h"\n', 1),
    ("text/a.h", "#include <nlohmann/json.hpp>\n", 1),
    ("text/a.cc", "#include <nlohmann/json.hpp>\n", 0),
    ("runtime/job/a.cc", '#include "rollout/engine.h"\n#include "learner/learner.h"\n', 0),
]

for path, text, want in CASES:
    with tempfile.TemporaryDirectory() as root:
        file = pathlib.Path(root, path)
        file.parent.mkdir(parents=True)
        file.write_text(text)
        got = subprocess.run([sys.executable, sys.argv[1], root], stdout=subprocess.DEVNULL).returncode
        if got != want:
            sys.exit(f"{path} with {text!r}: exit code {got}, wanted {want}")
print(f"{len(CASES)} cases")
