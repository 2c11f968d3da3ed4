"""The bare lane's PATH: essential packages, the README's, and what these depend on; nothing else."""

from tests.bare import PACKAGES, closure

TABLE = "\n".join(
    "\t".join(row)
    for row in (
        ("coreutils", "yes", "", "libc6 (>= 2.34), "),
        ("libc6", "no", "", ", "),
        ("mawk", "no", "awk", ", libc6"),
        ("base-files", "yes", "", "awk, "),
        ("g++", "no", "c++-compiler", ", g++-12 (>= 12.2), gcc | other-gcc"),
        ("g++-12", "no", "", ", binutils:any"),
        ("gcc", "no", "", ", "),
        ("binutils", "no", "", ", "),
        ("iputils-ping", "no", "ping", ", libc6"),
    )
)


def test_dependencies_are_followed_through_versions_alternatives_and_virtual_packages():
    assert closure(TABLE, ("g++", "not-installed")) == {
        *("coreutils", "libc6", "mawk", "base-files"),
        *("g++", "g++-12", "gcc", "binutils"),
    }


def test_the_readme_names_the_packages():
    from tests.lanes import ROOT

    readme = (ROOT / "README.md").read_text()
    assert f"apt-get install {' '.join(PACKAGES)}" in readme
