"""usage: interrupt.py MODEL: Ctrl-C ends a search with the best plan so far; the compiler goes on with it."""
import signal
import subprocess
import sys
import time

command = ["pc-compile", sys.argv[1], "--auto", "--ranks=8", "--search-compositions=100000", "--emit-plan=-", "--to=model", "-o", "/dev/null"]
search = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
time.sleep(3)  # long enough for a plan, and a small part of the search
search.send_signal(signal.SIGINT)
plan, said = search.communicate(timeout=60)
print("exit", search.returncode, plan, said)
