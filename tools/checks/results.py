#!/usr/bin/env python3
"""Count what the test runs did, case by case, and say which cases failed or were skipped, and what took longest.

usage: results.py FOLDER [FAILED_STEP...]     FOLDER holds one JUnit file of ctest for each preset, and `steps`:
                                              lines of a step's name and its seconds
The last line reads "N passed, N failed, N skipped"; the exit code is 1 if anything failed or nothing ran.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

CASE = re.compile(r"^\[\s+(OK|FAILED|SKIPPED)\s+\] (\w+)\s*$", re.MULTILINE)
RESULT_OF_CASE = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
RESULT_OF_PROGRAM = {"run": "passed", "fail": "failed", "notrun": "skipped", "disabled": "skipped"}


def results_of_program(test):
    """(result, name) of each case that a test program reported; of the program itself where it reported none."""
    program, outcome = test.get("name"), RESULT_OF_PROGRAM.get(test.get("status"), "failed")
    said = CASE.findall(test.findtext("system-out") or "")
    # cmocka names failed and skipped cases again at the end of its output, so repetitions are dropped.
    cases = [(RESULT_OF_CASE[word], f"{program}: {case}") for word, case in dict.fromkeys(said)]
    if not cases:
        return [(outcome, program)]
    if outcome == "failed" and all(result != "failed" for result, _ in cases):
        cases.append(("failed", f"{program}: ended before its cases did, or a sanitizer spoke"))
    return cases


def print_cases(title, cases):
    """Each case once, with the runs in which it ended so: what is skipped in one is mostly skipped in all."""
    for case, presets in sorted(cases.items()):
        print(f"    {title}: {case} ({', '.join(presets)})")


def print_times(folder, tests):
    """The seconds of each step and their sum, and the ten tests that took longest, by the clock on the wall."""
    if (folder / "steps").exists():
        steps = [line.split() for line in (folder / "steps").read_text().splitlines()]
        seconds = ", ".join(f"{name} {spent}" for name, spent in steps)
        print(f"seconds: {seconds}; together {sum(int(spent) for _, spent in steps)}")
    longest = sorted(tests, reverse=True)[:10]
    print("longest tests: " + ", ".join(f"{name} ({preset}) {spent:.0f}" for spent, name, preset in longest))


def main():
    folder, failed_steps = Path(sys.argv[1]), sys.argv[2:]
    total, cases, times = Counter(), {"failed": {}, "skipped": {}}, []
    for path in sorted(folder.glob("*.xml")):
        tests = list(ElementTree.parse(path).getroot().iter("testcase"))
        times += [(float(test.get("time") or 0), test.get("name"), path.stem) for test in tests]
        results = [result for test in tests for result in results_of_program(test)]
        counts = Counter(result for result, _ in results)
        print(f"{path.stem:8} {counts['passed']:5} passed {counts['failed']:5} failed {counts['skipped']:5} skipped")
        for result, case in results:
            if result in cases:
                cases[result].setdefault(case, []).append(path.stem)
        total += counts
    print_cases("skipped", cases["skipped"])
    print_cases("failed", cases["failed"])
    for step in failed_steps:
        print(f"    failed: step {step}")
    print_times(folder, times)
    total["failed"] += len(failed_steps)
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    sys.exit(0 if total["passed"] > 0 and total["failed"] == 0 else 1)


if __name__ == "__main__":
    main()
