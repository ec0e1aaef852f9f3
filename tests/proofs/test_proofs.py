"""What is proved by machine of the kernel: of doubles by z3, of sums and sets by Coq."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = ("vectors.v", "sets.v")


def _proved(z3, negated, *given):
    """Whether z3 finds no counterexample."""
    solver = z3.Solver()
    solver.add(*given, negated)
    return solver.check() == z3.unsat


def test_adding_a_number_that_is_not_negative_never_makes_a_double_smaller():
    z3 = pytest.importorskip("z3", reason="z3-solver is not installed")
    double, zero = z3.Float64(), z3.FPVal(0.0, z3.Float64())
    a, b = z3.FPs("a b", double)
    total = z3.fpAdd(z3.RNE(), a, b)
    given = (z3.fpGEQ(a, zero), z3.fpGEQ(b, zero))
    assert _proved(z3, z3.Not(z3.fpGEQ(total, a)), *given)
    # So a sum of squares that once was too large stays so; without the premise it need not.
    assert not _proved(z3, z3.Not(z3.fpGEQ(total, a)), given[0])


def test_a_sum_of_whole_doubles_that_comes_out_below_2_to_the_53_is_exact():
    z3 = pytest.importorskip("z3", reason="z3-solver is not installed")
    double = z3.Float64()
    a, b = z3.FPs("a b", double)
    zero, most = z3.FPVal(0.0, double), z3.FPVal(2.0**53, double)
    nearest = z3.fpAdd(z3.RNE(), a, b)
    whole = [z3.fpEQ(z3.fpRoundToIntegral(z3.RNE(), each), each) for each in (a, b)]
    given = [z3.fpGEQ(a, zero), z3.fpGEQ(b, zero), *whole]
    # What rounds up and down to the same number is that number.
    inexact = z3.Not(z3.fpEQ(z3.fpAdd(z3.RTP(), a, b), z3.fpAdd(z3.RTN(), a, b)))
    assert _proved(z3, inexact, *given, z3.fpLT(nearest, most))
    # At 2^53 it is so no longer: 2^53 + 1 is 2^53 in doubles.
    assert not _proved(z3, inexact, *given, z3.fpLEQ(nearest, most))


def test_what_is_no_number_is_in_no_ball():
    z3 = pytest.importorskip("z3", reason="z3-solver is not installed")
    square, most = z3.FPs("square most", z3.Float64())
    assert _proved(z3, z3.fpLEQ(square, most), z3.fpIsNaN(square))


def test_a_sum_that_is_rounded_once_moves_no_farther_than_whole_ends_are_apart():
    z3 = pytest.importorskip("z3", reason="z3-solver is not installed")
    x, y = z3.Reals("x y")  # the exact sums of two neighbours, in one coordinate
    whole = z3.Int("whole")  # how far apart a record's two numbers are at most
    rounded = z3.ToInt(x + z3.Q(1, 2)) - z3.ToInt(y + z3.Q(1, 2))
    near = (x - y <= whole, y - x <= whole)
    assert _proved(z3, z3.Or(rounded > whole, -rounded > whole), *near)
    # With ends that are not whole it moves farther, but by less than 1 in any case.
    assert not _proved(z3, rounded > x - y)
    assert _proved(z3, z3.Or(rounded - (x - y) >= 1, (x - y) - rounded >= 1))


def test_two_vectors_of_a_ball_are_no_further_apart_than_its_diameter():
    z3 = pytest.importorskip("z3", reason="z3-solver is not installed")
    a, b = z3.Reals("a b")
    # Of one coordinate; added up over all of them |u - v|^2 <= 2|u|^2 + 2|v|^2 <= 4R^2.
    assert _proved(z3, (a - b) ** 2 != 2 * a**2 + 2 * b**2 - (a + b) ** 2)
    assert _proved(z3, (a - b) ** 2 > 2 * a**2 + 2 * b**2)
    assert not _proved(z3, (a - b) ** 2 > a**2 + b**2)


@pytest.mark.heavy
def test_two_points_of_a_parabola_are_no_further_apart_than_its_diameter():
    """(t, 2t² − 1) and (u, 2u² − 1), |t|, |u| ≤ 1: `Set.parabola`, before its ends are rounded."""
    z3 = pytest.importorskip("z3", reason="z3-solver is not installed")
    t, u, root = z3.Reals("t u root")
    given = [t >= -1, t <= 1, u >= -1, u <= 1, root > 0, root * root == z3.Q(1, 2)]
    apart = (t - u) ** 2 * (1 + 4 * (t + u) ** 2)
    assert _proved(z3, apart > z3.Q(71, 16) + root, *given)
    assert not _proved(z3, apart > 5, *given)
    in_l1 = z3.Abs(t - u) * (1 + 2 * z3.Abs(t + u))
    assert _proved(z3, in_l1 > z3.Q(25, 8), *given)
    assert not _proved(z3, in_l1 > 3, *given)


def test_the_theorems_are_stated_without_axioms_or_gaps():
    for name in FILES:
        text = (HERE / name).read_text(encoding="ascii")
        assert not re.search(r"\b(Axiom|Admitted|admit|Parameter|Conjecture)\b", text)


@pytest.mark.heavy
def test_coq_checks_how_far_one_record_moves_a_sum(tmp_path):
    if shutil.which("coqc") is None:
        pytest.skip("coqc is not installed (Debian: apt install coq)")
    printed = ""
    for name in FILES:
        shutil.copy(HERE / name, tmp_path)
        done = subprocess.run(
            ["coqc", "-Q", ".", "Parley", name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed += done.stdout
    asked = (HERE / "sets.v").read_text(encoding="ascii").count("Print Assumptions")
    assert asked >= 10
    assert printed.count("Closed under the global context") == asked
    assert "Axioms" not in printed
