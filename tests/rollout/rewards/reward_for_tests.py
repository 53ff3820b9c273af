"""A process reward that does what the completion says. argv[1]: a folder for what must outlive a process.

"good"           the row's "value" as reward
"echo"           the request it got, as the reason of an error
"pid"            its process id as reward; "leave": the same, and ends
"meet N"         its process id, once N processes are at it
"... once X"     what the part before says, but good from the second time on that any process sees X
The others are in act().
"""
import json
import os
import pathlib
import sys
import time

folder = pathlib.Path(sys.argv[1])


def answer(**fields):
    print(json.dumps(fields), flush=True)


def meet(count):
    """Returns once so many processes are here at the same time; one after the other they would never."""
    (folder / f"here-{os.getpid()}").touch()
    while len(list(folder.glob("here-*"))) < count:
        time.sleep(0.01)


def act(request):
    todo, _, mark = request["completion"].partition(" once ")
    if mark:
        try:
            (folder / mark).touch(exist_ok=False)
        except FileExistsError:
            todo = "good"
    with open(folder / "log", "a") as log:
        log.write(f"{request['id']} {todo}\n")
    if todo == "die":
        os._exit(3)
    elif todo == "kill":
        os.kill(os.getpid(), 9)
    elif todo == "stall":
        time.sleep(600)
    elif todo == "close":
        sys.stdout.close()
        os.close(1)
        time.sleep(600)
    elif todo == "garbage":
        print("Traceback: no JSON at all", flush=True)
    elif todo == "wrong id":
        answer(id=request["id"] + "0", reward=1)
    elif todo == "no reward":
        answer(id=request["id"])
    elif todo == "two lines":
        answer(id=request["id"], reward=1)
        answer(id=request["id"], reward=2)
    elif todo == "leave":
        answer(id=request["id"], reward=os.getpid())
        os._exit(0)
    elif todo == "nan":
        answer(id=request["id"], reward=float("nan"))
    elif todo == "error":
        answer(id=request["id"], error="no judge today")
    elif todo == "parts":
        answer(id=request["id"], rewards={"correct": 1, "short": 0.5})
    elif todo == "echo":
        answer(id=request["id"], error=json.dumps(request))
    elif todo == "pid":
        answer(id=request["id"], reward=os.getpid())
    elif todo.startswith("meet"):
        meet(int(todo.split()[1]))
        answer(id=request["id"], reward=os.getpid())
    else:
        answer(id=request["id"], reward=request["value"])


for line in sys.stdin:
    act(json.loads(line))
