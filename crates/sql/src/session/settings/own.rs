//! The settings that PostgreSQL does not have, sorted by name.

use super::kind::{Setting, Unit};
use super::table::{MAX, s};
use super::{Kind::*, Scope::*};
use Unit::{Kilobytes, Milliseconds};

pub const OWN: &[Setting] = &[
    s(
        "canon.commit_token",
        "",
        Text,
        Internal,
        false,
        "What this session has written and read, as a token for canon.min_token of another one.",
    ),
    s(
        "canon.forward",
        "on",
        Bool,
        User,
        false,
        "A replica runs at the primary what it may not run itself; off: 25006.",
    ),
    s(
        "canon.maintenance",
        "off",
        Bool,
        Superuser,
        false,
        "Lets a superuser in at the start of a session while the server does not serve yet, to promote it.",
    ),
    s(
        "canon.max_staleness",
        "1s",
        Int(0, MAX, Milliseconds),
        User,
        false,
        "Sets how old what a bounded read shows may be.",
    ),
    s(
        "canon.min_token",
        "",
        Text,
        User,
        false,
        "Reads see what this token stands for, such as another session's canon.commit_token.",
    ),
    s(
        "canon.read_consistency",
        "strong",
        Enum(&["strong", "session", "bounded", "eventual"]),
        User,
        false,
        "Sets how fresh reads at a replica are; those at the primary are always strong.",
    ),
    s(
        "canon.read_policy",
        "lamport+tracker",
        Enum(&[
            "lamport+tracker",
            "lamport",
            "read-wait",
            "stale",
            "commit-wait",
        ]),
        User,
        false,
        "Sets how strong reads at a replica come about, to compare the ways.",
    ),
    s(
        "canon.read_timeout",
        "0",
        Int(0, MAX, Milliseconds),
        User,
        false,
        "Sets how long a statement waits to be as fresh as it should be before canon.stale_action is taken (0: no limit).",
    ),
    s(
        "canon.report_settings",
        "off",
        Bool,
        User,
        false,
        "Reports every setting that changes to the client, so that a proxy can carry a session to another node.",
    ),
    s(
        "canon.report_token",
        "off",
        Bool,
        User,
        false,
        "Reports canon.commit_token to the client after each transaction.",
    ),
    s(
        "canon.stale_action",
        "error",
        Enum(&["wait", "forward", "error"]),
        User,
        false,
        "Sets what is done after canon.read_timeout: wait on, run the statement at the primary, or give an error.",
    ),
    s(
        "canon.statement_memory",
        "256MB",
        Int(64, MAX, Kilobytes),
        User,
        false,
        "Sets the memory that one statement may hold, with all that its session keeps (53200 above).",
    ),
    s(
        "canon.statement_memory_ceiling",
        "1GB",
        Int(64, MAX, Kilobytes),
        Superuser,
        false,
        "Sets the most that roles without SUPERUSER may set canon.statement_memory to.",
    ),
];
