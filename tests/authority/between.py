"""A program between a broker and the fake tool server: it writes down what is sent, and does what files beside it say.

`lines`: each tools/call as it came, appended. `hold`: while it is there, answers to calls wait. `words`: a JSON object
of words to be replaced in what the server says. `refuse`: where it is there, the program ends at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

FAKE = Path(__file__).parents[1] / "fakes" / "tool_server.py"


def main(folder: Path) -> None:
    if (folder / "refuse").exists():
        sys.exit(3)
    server = subprocess.Popen([sys.executable, "-S", FAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin
    assert server.stdout
    calls: set[object] = set()

    def answers() -> None:
        for line in server.stdout or ():
            if json.loads(line).get("id") in calls:
                while (folder / "hold").exists():
                    time.sleep(0.005)
            words = folder / "words"
            for old, new in json.loads(words.read_text()).items() if words.exists() else ():
                line = line.replace(old.encode(), new.encode())
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        os._exit(server.wait())

    threading.Thread(target=answers, daemon=True).start()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            calls.add(message["id"])
            with (folder / "lines").open("ab") as log:
                log.write(line)
        server.stdin.write(line)
        server.stdin.flush()
    server.kill()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
