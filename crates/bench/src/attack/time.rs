//! Attacks on the server's time: statements that compute for minutes where nothing ends them. Each has a limit of a second, so that the table
//! shows two things: that they are ended, and what the others feel meanwhile.

use super::stage::{Attack, Stage};
use std::io;

/// Clients of each attack: more than there are cores, as a rule.
const CLIENTS: usize = 8;

fn limited(stage: &Stage, sql: &str) -> io::Result<()> {
    stage.again(CLIENTS, &format!("SET statement_timeout = '1s'; {sql}"));
    Ok(())
}

/// See the head of `mod.rs`.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "exp",
        what: "eight compute e^100000 to all its digits, again and again",
        run: |s| {
            limited(
                s,
                "SELECT count(exp(100000 + i::numeric)) FROM generate_series(1, 100000000) i",
            )
        },
    },
    Attack {
        name: "power",
        what: "eight raise to powers with a hundred thousand digits",
        run: |s| {
            limited(
                s,
                "SELECT count(power(1.5 + i::numeric / 1000, 200000.5)) FROM generate_series(1, 100000000) i",
            )
        },
    },
    Attack {
        name: "translate",
        what: "eight translate long texts by long tables",
        run: |s| {
            limited(
                s,
                "SELECT count(translate(repeat('ab', 2000000) || i, repeat('xyz', 300), 'abc')) FROM generate_series(1, 100000000) i",
            )
        },
    },
    Attack {
        name: "regular expression",
        what: "eight match three million characters against thousands of states",
        run: |s| limited(s, "SELECT repeat('x', 3000000) ~ '(x+x+)+y(a?){3000}'"),
    },
    Attack {
        name: "LIKE",
        what: "eight match a pattern that begins anew at each character",
        run: |s| {
            limited(
                s,
                "SELECT repeat('a', 2000000) LIKE '%' || repeat('a', 1000000) || 'b%'",
            )
        },
    },
    Attack {
        name: "overlap of arrays",
        what: "eight compare two million elements with two million",
        run: |s| {
            limited(
                s,
                "SELECT array_fill(1, ARRAY[2000000]) && array_fill(2, ARRAY[2000000])",
            )
        },
    },
    Attack {
        name: "joins without a condition",
        what: "eight pair a million rows with a million",
        run: |s| {
            limited(
                s,
                "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b",
            )
        },
    },
];
