"""usage: interrupt.py MODEL [FLAG...]

Ctrl-C must end a search, with these flags or for 8 ranks, with the best plan so far, and the compiler must continue
with this plan."""
import signal
import subprocess
import sys
import time

flags = sys.argv[2:] or ["--auto", "--ranks=8", "--search-compositions=100000"]
search = subprocess.Popen(["pc-compile", sys.argv[1], *flags, "--emit-plan=-", "--to=model", "-o", "/dev/null"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
time.sleep(3)  # long enough for a plan of a small model, and a small part of the search
search.send_signal(signal.SIGINT)
plan, said = search.communicate(timeout=60)
print("exit", search.returncode, plan, said)
