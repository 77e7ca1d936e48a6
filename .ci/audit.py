"""Write an SBOM of the pinned packages and check them for known vulnerabilities.

`make audit` runs this in a separate environment. It writes dist/sbom.cdx.json, a CycloneDX SBOM of
every package in constraints.txt, and exits with 1 if one of them has a known vulnerability. If the
database cannot be reached, it prints a message and exits with 0.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
SBOM = ROOT / "dist" / "sbom.cdx.json"
PROGRAMS = Path(sys.executable).parent

MOST_SECONDS = 60
"""Timeout for all packages together; a single connection has a timeout of 5 seconds."""

_UNREACHABLE = re.compile(r"requests\.exceptions|ConnectionError|ServiceError|[Cc]ould not connect")


def write_sbom() -> None:
    """Write the SBOM; this needs no network."""
    SBOM.parent.mkdir(exist_ok=True)
    command: list[str | Path] = [PROGRAMS / "cyclonedx-py", "requirements", CONSTRAINTS]
    command += ["--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "-o", SBOM]
    subprocess.run(command, check=True, stderr=subprocess.PIPE, timeout=MOST_SECONDS)


def look_up() -> tuple[str, str]:
    """Run pip-audit on every package; return its stdout and stderr."""
    command: list[str | Path] = [PROGRAMS / "pip-audit", "--requirement", CONSTRAINTS]
    command += ["--no-deps", "--disable-pip", "--format", "json"]
    command += ["--timeout", "5", "--progress-spinner", "off"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "", f"could not connect within {MOST_SECONDS} seconds"
    return done.stdout, done.stderr


def judge(output: str, errors: str) -> tuple[int, list[str]]:
    """Return the exit code and the lines to print."""
    last = errors.strip().rpartition("\n")[2]
    try:
        packages = json.loads(output)["dependencies"]
    except ValueError:
        if _UNREACHABLE.search(errors):
            return 0, [f"skipped: the database of vulnerabilities cannot be reached: {last}"]
        return 2, [f"pip-audit failed: {last}"]
    # A registry without a database answers 404 for each package, and pip-audit passes.
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    if len(unknown) == len(packages):
        return 0, ["skipped: the registry here has no database of vulnerabilities"]
    lines = [f"not in the database: {', '.join(unknown)}"] if unknown else []
    found = [
        f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in "
        f"{', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for package in packages
        for vulnerability in package.get("vulns", [])
    ]
    if found:
        return 1, lines + found
    return 0, [*lines, f"no known vulnerability in {len(packages) - len(unknown)} packages"]


def main() -> int:
    """Write the SBOM, run the audit and print its result."""
    write_sbom()
    print(f"audit: wrote {SBOM.relative_to(ROOT)}")
    code, lines = judge(*look_up())
    print("\n".join(f"audit: {line}" for line in lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
