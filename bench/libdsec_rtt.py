"""Times commands.run through libdsec, as a user calls it; prints like `measure exec_rtt`.

  libdsec_rtt.py URL KEY COUNT BASE WORKSPACE TOOLKIT PROGRAM
"""
import os
import sys
import time

WARM_UP = 5


def main() -> int:
    url, key, count, base, workspace, toolkit, program = sys.argv[1:]
    os.environ |= {"DSEC_URL": url, "DSEC_API_KEY": key}
    from libdsec import Sandbox

    failed = 0
    with Sandbox.create(base, workspace=workspace, toolkits=[toolkit], memory_mb=256) as sandbox:
        for i in range(-WARM_UP, int(count)):
            began = time.perf_counter()
            result = sandbox.commands.run([program])
            took = time.perf_counter() - began
            if result.exit_code != 0:
                failed += 1
            elif i >= 0:
                print(f"{took * 1e3:.4f}")
    print(f"failed {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
